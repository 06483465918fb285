-- @include mark
-- @include bump
-- Ends a job's hold on its lock and its id: the one place where that happens. `how` is its final state, or "deleted";
-- `started`: it has been tried. Returns nothing; what went wrong is counted.
local function finish(prefix, job, how, started, now, counters)
  local good = how == 'succeeded' or how == 'dropped'
  local anyway = how == 'deleted' or (not started and (how == 'cancelled' or how == 'expired'))
  local day, retention = 86400000, job.retention or 0
  if job.lock ~= '' and (anyway or job.until_ == 0 or (job.until_ == 1 and good)) then
    local lock = prefix .. 'unique:' .. job.lock
    local owner = redis.call('GETRANGE', lock, 0, 15)
    if owner == job.uid then
      redis.call('DEL', lock)
    elseif not anyway then
      bump(counters, 'locks_lost', 1)
      bump(counters, 'locks_lost:' .. job.task, 1)
    end
  end
  if job.id ~= '' and how ~= 'dead' then
    local key = prefix .. 'id:' .. job.id
    if redis.call('GET', key) == job.uid then
      if retention > 0 then redis.call('PEXPIRE', key, string.format('%.0f', retention)) else redis.call('DEL', key) end
    end
  end
  if job.tracked then
    if how == 'dead' then mark(prefix, job.uid, how, job.attempt, now, 7 * day)
    elseif retention > 0 then mark(prefix, job.uid, how, job.attempt, now, retention)
    else redis.call('DEL', prefix .. 'job:' .. job.uid) end
  end
end
