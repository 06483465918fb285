#!lua flags=allow-oom,no-writes
-- Counts the jobs in some of the entries of a stream that no worker has got yet.
-- KEYS  1 prefix of the queue
-- ARGV  1 "stream" | "front" | "suspects" · 2 id after which to begin, or "": the last that a worker has got · 3 most entries
-- Returns {OK, jobs, id of the last entry counted, or "" if there is no more}
-- @include delivered
-- @include unsettled
local prefix, name, after, limit = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local stream, jobs = prefix .. name, 0
if after == '' then after = delivered(stream) end
local entries = redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', limit)
for _, entry in ipairs(entries) do
  if entry[2][1] == 'f' then jobs = jobs + unsettled(entry[2][2], '') end
end
return {STATUS.OK, jobs, #entries == limit and entries[limit][1] or ''}
