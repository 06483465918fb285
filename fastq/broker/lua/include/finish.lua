-- @include mark
-- @include lost
-- @include release
-- Ends a job's hold on its lock, its id and its place among the cancelled: the one place where that happens. `how` is its final
-- state, or "deleted"; `started`: it has been tried. Whoever waits for the result of a tracked job is woken, but for a success,
-- whose worker writes the result itself. What went wrong is counted.
local function finish(prefix, job, how, started, now, counters)
  local good = how == 'succeeded' or how == 'dropped'
  local anyway = how == 'deleted' or (not started and (how == 'cancelled' or how == 'expired'))
  local hour, week, retention = 3600000, 604800000, job.retention or 0
  if job.lock ~= '' then
    -- until: 0 done, 1 success, 2 start, 3 ttl
    local free = anyway or job.until_ == 0 or (job.until_ == 1 and good)
    if job.renew then
      local running = prefix .. 'running'
      if string.sub(redis.call('HGET', running, job.lock) or '', 1, 16) == job.uid then redis.call('HDEL', running, job.lock) end
    end
    local own = release(prefix, job.lock, job.uid, free, now, counters)
    if free and not own and not anyway then lost(counters, job.lock) end
    -- What is left of a lock that lived as long as its job is its ttl.
    local lock = prefix .. 'unique:' .. job.lock
    if own and not free and job.renew and redis.call('GETRANGE', lock, 0, 15) == job.uid then
      redis.call('PEXPIRE', lock, string.format('%.0f', job.ttl))
    end
    redis.call('HDEL', prefix .. 'handed', job.uid)
  end
  if job.id ~= '' then
    local key = prefix .. 'id:' .. job.id
    if redis.call('GETRANGE', key, 0, 15) == job.uid then
      -- A dead job has its id until it is replayed, deleted or pruned.
      if how == 'dead' then redis.call('PERSIST', key)
      elseif retention > 0 and how ~= 'deleted' then redis.call('PEXPIRE', key, string.format('%.0f', retention))
      else redis.call('DEL', key) end
    end
  end
  if job.tracked then
    if how == 'deleted' then redis.call('DEL', prefix .. 'job:' .. job.uid)
    elseif how == 'dead' then mark(prefix, job.uid, how, job.attempt, now, week)
    else mark(prefix, job.uid, how, job.attempt, now, math.max(retention, hour)) end
    if how ~= 'succeeded' then
      local result = prefix .. 'result:' .. job.uid
      redis.call('XADD', result, 'MAXLEN', 1, '*', 's', how)
      redis.call('PEXPIRE', result, string.format('%.0f', math.max(retention, hour)))
    end
  end
  redis.call('ZREM', prefix .. 'cancelled', job.uid)
end
