#!lua flags=allow-oom,no-writes
-- Looks at locks.
-- KEYS  1 prefix of the queue
-- ARGV  1.. lock keys as messages carry them, at most 200
-- Returns {OK, lock}: a lock is {value, ms left, state of its holder}, false where there is none. A job whose start nobody has to
--         ask for is "waiting" while it runs.
local prefix, suffixes = KEYS[1], ARGV
local call, names, locks = redis.call, {W = 'waiting', S = 'scheduled', R = 'running', E = 'ended'}, {}
for i = 1, #suffixes do
  local lock = prefix .. 'unique:' .. suffixes[i]
  local value = call('GET', lock)
  locks[i] = false
  if value then
    local uid, state = string.sub(value, 1, 16), names[string.sub(value, 17)] or 'waiting'
    local body = state == 'scheduled' and call('HGET', prefix .. 'jobs', uid)
    if body and #body >= 48 and struct.unpack('<I2', body, 9) > 1 then state = 'retrying' end
    if state == 'ended' and call('ZSCORE', prefix .. 'dead', uid) then state = 'dead' end
    locks[i] = {value, call('PTTL', lock), state}
  end
end
return {STATUS.OK, locks}
