-- Gives a lock to a job, whoever had it: for its ttl past its due time; a `renew` lock outlives a day of waiting instead, until a
-- worker holds it.
local function lockfor(lock, job, state, now)
  local ms = math.max(0, (job.due or 0) - now) + (job.renew and math.max(job.ttl, 86400000) or job.ttl)
  redis.call('SET', lock, job.uid .. state, 'PX', string.format('%.0f', ms))
end
