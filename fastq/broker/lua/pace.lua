#!lua flags=allow-oom,no-writes
-- How a queue keeps up: how long its oldest waiting job has waited, and its counters as they stood some minutes ago.
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2 minutes to look back at the most
-- Returns {OK, now ms, ms that the oldest waiting job has been in its stream or -1, counters then}: a flat list of names and
--         numbers, with the ms of that time as "at"; empty if nobody has noted them (no worker ticked)
-- @include clock
-- @include delivered
local prefix, given, minutes = KEYS[1], ARGV[1], tonumber(ARGV[2])
local now, oldest = clock(given), nil
for _, name in ipairs({'stream', 'front', 'suspects'}) do
  -- Two, for one may be the wake entry, which is no job.
  for _, entry in ipairs(redis.call('XRANGE', prefix .. name, '(' .. delivered(prefix .. name), '+', 'COUNT', 2)) do
    local ms = tonumber(string.match(entry[1], '^%d+'))
    if entry[2][1] == 'f' and (not oldest or ms < oldest) then oldest = ms end
  end
end
local this, past = math.floor(now / 60000), {}
for minute = this - minutes, this do
  past = redis.call('HGETALL', prefix .. string.format('stats:%.0f', minute))
  if #past > 0 then break end
end
return {STATUS.OK, now, oldest and math.max(0, now - oldest) or -1, past}
