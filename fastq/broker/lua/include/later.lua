-- Schedules a job: its due time and its message; wakes an idle worker when that is sooner than anything it waits for.
local function later(prefix, uid, due, message, now)
  local scheduled, stream, wake = prefix .. 'scheduled', prefix .. 'stream', prefix .. 'wake'
  if due - now < 2000 and redis.call('EXISTS', wake) == 0 then
    local first = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
    if not first[2] or due < tonumber(first[2]) then
      redis.call('SET', wake, redis.call('XADD', stream, '*', 'w', ''))
    end
  end
  redis.call('ZADD', scheduled, string.format('%.0f', due), uid)
  redis.call('HSET', prefix .. 'jobs', uid, message)
end
