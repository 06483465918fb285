-- Keeps the main counters of a queue as they stand at the first tick of a minute, for two hours: rates are read from what has
-- been added since.
local function snapshot(prefix, now)
  local key, names = prefix .. string.format('stats:%.0f', math.floor(now / 60000)), {'enqueued', 'succeeded', 'failed', 'dead'}
  if redis.call('EXISTS', key) == 1 then return end
  local counts = redis.call('HMGET', prefix .. 'stats', unpack(names))
  for i, name in ipairs(names) do
    if counts[i] then redis.call('HSET', key, 'at', string.format('%.0f', now), name, counts[i]) end
  end
  redis.call('PEXPIRE', key, 7200000)
end
