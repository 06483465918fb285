-- @include head
-- Tells in the lock of a scheduled job that it waits from now on.
local function came_due(prefix, message)
  if #message < 48 or struct.unpack('<I2', message, 37) == 0 then return end
  local job = head(message)
  local lock = prefix .. 'unique:' .. job.lock
  if redis.call('GETRANGE', lock, 0, 15) == job.uid then redis.call('SETRANGE', lock, 16, 'W') end
end
