-- @include bump
-- Takes a scheduled or retrying job out of the schedule; its message, or nil if it was not there.
local function unschedule(prefix, uid, counters)
  if redis.call('ZREM', prefix .. 'scheduled', uid) == 0 then return nil end
  local message = redis.call('HGET', prefix .. 'jobs', uid)
  redis.call('HDEL', prefix .. 'jobs', uid)
  if message and #message > 10 and struct.unpack('<I2', message, 9) > 1 then bump(counters, 'retrying', -1) end
  return message or nil
end
