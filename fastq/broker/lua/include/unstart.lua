-- @include runs
-- @include unpark
-- A worker lets go of a job that is not over; `state` is what its lock tells from now on: W it waits, S it is scheduled. Until a
-- `renew` job starts again its lock outlives a day of waiting. If its lock is another's, a parked job need not wait for it.
local function unstart(prefix, worker, job, state, due, now, counters)
  local lock = prefix .. 'unique:' .. job.lock
  local owner = redis.call('GETRANGE', lock, 0, 15)
  if owner == job.uid then redis.call('SETRANGE', lock, 16, state) end
  if not job.renew then return end
  redis.call('HDEL', prefix .. 'held:' .. worker, job.lock)
  local running = prefix .. 'running'
  if redis.call('HGET', running, job.lock) == job.uid .. worker then redis.call('HDEL', running, job.lock) end
  if owner == job.uid then
    redis.call('PEXPIRE', lock, string.format('%.0f', math.max(0, due - now) + math.max(job.ttl, 86400000)))
  elseif not runs(prefix, job.lock, job.uid) and redis.call('GETRANGE', lock, 16, 16) ~= 'R' then
    unpark(prefix, job.lock, now, counters)
  end
end
