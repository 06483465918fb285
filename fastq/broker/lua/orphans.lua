#!lua flags=allow-oom
-- Finds locks whose job is nowhere any more, and releases them if that is asked for. It can be told of a lock that says its job is
-- scheduled, and of any while the streams are empty; one behind which a job or a call waits is left to the ticks.
-- KEYS  1 prefix of the queue
-- ARGV  1 "look" | "release" · 2.. lock keys as messages carry them, at most 200
-- Returns {OK, lock keys without a job}
local prefix, act, suffixes = KEYS[1], ARGV[1], ARGV
local call, pending, found = redis.call, prefix .. 'pending', {}
local idle = call('XLEN', prefix .. 'stream') + call('XLEN', prefix .. 'front') + call('XLEN', prefix .. 'suspects') == 0

local function nowhere(uid, state, suffix)
  return (state == 'S' or (idle and state ~= 'E')) and not call('ZSCORE', prefix .. 'scheduled', uid)
    and call('EXISTS', prefix .. 'parked:' .. suffix) == 0
    and call('HEXISTS', pending, uid) + call('HEXISTS', pending, uid .. '+') == 0
end

for i = 2, #suffixes do
  local lock = prefix .. 'unique:' .. suffixes[i]
  local value = call('GET', lock)
  if value and nowhere(string.sub(value, 1, 16), string.sub(value, 17), suffixes[i]) then
    found[#found + 1] = suffixes[i]
    if act == 'release' then call('DEL', lock) end
  end
end
return {STATUS.OK, found}
