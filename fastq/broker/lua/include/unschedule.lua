-- Takes a scheduled job out of the schedule; its message, or nil if it was not there.
local function unschedule(prefix, uid)
  if redis.call('ZREM', prefix .. 'scheduled', uid) == 0 then return nil end
  local message = redis.call('HGET', prefix .. 'jobs', uid)
  redis.call('HDEL', prefix .. 'jobs', uid)
  return message or nil
end
