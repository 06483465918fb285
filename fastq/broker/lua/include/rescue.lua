-- @include unpark
-- Lets parked jobs in whose lock nobody has any more (its holder, or its queue, was lost); looks at a few locks a call.
local function rescue(prefix, now, counters)
  for _, suffix in ipairs(redis.call('SRANDMEMBER', prefix .. 'parking', 20)) do
    if redis.call('EXISTS', prefix .. 'unique:' .. suffix) == 0 and not unpark(prefix, suffix, now, counters) then
      redis.call('SREM', prefix .. 'parking', suffix)
    end
  end
end
