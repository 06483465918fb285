-- @include above
-- @include enter
-- Lets the first parked job of a key in, with the lock, whoever has it; its uid, or nil if none is parked.
local function unpark(prefix, suffix, now, counters)
  local parked = prefix .. 'parked:' .. suffix
  local message = redis.call('LPOP', parked)
  if not message then return nil end
  if redis.call('EXISTS', parked) == 0 then redis.call('SREM', prefix .. 'parking', suffix) end
  enter(prefix, 'front', message, above(prefix, now)(), now, counters)
  return string.sub(message, 11, 26)
end
