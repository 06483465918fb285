-- A worker lets go of a `renew` lock whose job is not over: until the job starts again the lock outlives a day of waiting.
local function unhold(prefix, worker, job, state, due, now)
  redis.call('HDEL', prefix .. 'held:' .. worker, job.lock)
  local lock = prefix .. 'unique:' .. job.lock
  if redis.call('GETRANGE', lock, 0, 15) == job.uid then
    redis.call('SETRANGE', lock, 16, state)
    redis.call('PEXPIRE', lock, string.format('%.0f', math.max(0, due - now) + math.max(job.ttl, 86400000)))
  end
end
