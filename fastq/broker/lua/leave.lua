#!lua flags=allow-oom
-- Takes a worker out of a queue: at its own end, or because its supervisor saw it die. What it holds is brought back in bounded
-- calls; it is deleted when nothing is left.
-- KEYS  1 prefix of the queue
-- ARGV  1 worker id · 2 now ms, or "" · 3 1 if it died, 0 if it ends well · 4 most entries to take
--       5 most crashes of a job
-- Returns {OK, jobs brought back, 1 if the call must be repeated}
-- @include clock
-- @include reclaim
-- @include remove
-- @include count
local prefix, worker, given, died, limit, max_crashes = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now, counters = clock(given), {}
redis.call('ZADD', prefix .. 'consumers', 'XX', -1, worker)
local back, _, more = reclaim(prefix, worker, died, limit, max_crashes, now, counters)
if not more then remove(prefix, worker) end
count(prefix, counters)
return {STATUS.OK, back, more and 1 or 0}
