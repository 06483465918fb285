-- Keeps a dead job for inspection and replay. `why` is given when a script, not a worker, found it dead.
local function bury(prefix, uid, message, why, now, counters)
  redis.call('ZADD', prefix .. 'dead', string.format('%.0f', now), uid)
  redis.call('HSET', prefix .. 'jobs', uid, message)
  if why ~= '' then redis.call('HSET', prefix .. 'jobs', uid .. '!', why) end
  counters['dead'] = (counters['dead'] or 0) + 1
  counters['dead_bytes'] = (counters['dead_bytes'] or 0) + #message
end
