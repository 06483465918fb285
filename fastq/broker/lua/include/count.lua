-- Adds to the queue's counters, one HINCRBY each.
local function count(prefix, counters)
  for name, by in pairs(counters) do
    if by ~= 0 then redis.call('HINCRBY', prefix .. 'stats', name, by) end
  end
end
