#!lua flags=allow-oom
-- What a queue needs done about once a second, by whichever worker comes: due jobs are promoted, silent workers are fenced and
-- their jobs brought back, old dead jobs are pruned, and once a minute the counters are noted.
-- Moves: scheduled, retrying -> waiting · running -> waiting | dead (its worker is gone)
-- KEYS  1 prefix of the queue
-- ARGV  1 worker id · 2 now ms, or "" · 3 lease ms · 4 most jobs to move · 5 most crashes of a job
--       6 most dead jobs · 7 most bytes of dead jobs · 8 ms that a dead job is kept
-- Returns {OK, ms until a job is due or -1, jobs promoted, jobs brought back, entries lost, 1 if there is more to do now,
--         "" | "cancelled" | "paused", uids of jobs that are asked to stop} | {FENCED}
-- @include clock
-- @include member
-- @include promote
-- @include judge
-- @include prune
-- @include rescue
-- @include count
-- @include snapshot
local prefix, worker, given, lease, limit, max_crashes, dead_jobs, dead_bytes, dead_ms =
  KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]),
  tonumber(ARGV[8])
if not member(prefix, worker) then return {STATUS.FENCED} end
local now, counters, watch = clock(given), {}, prefix .. 'watch'
local promoted, lost, due = promote(prefix, limit, now, counters)
local back, gone, more = 0, 0, false
local last = tonumber(redis.call('GET', watch) or 0)
if now - last > lease / 3 then
  -- The server, or everybody, was away: nobody is judged by the silence of that time.
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'consumers', 0, '+inf')) do
    redis.call('ZADD', prefix .. 'consumers', string.format('%.0f', now), name)
  end
  redis.call('SET', watch, string.format('%.0f', now))
elseif now - last >= math.min(1000, lease / 8) or now < last then
  back, gone, more = judge(prefix, worker, lease, limit, max_crashes, now, counters)
  if not more then redis.call('SET', watch, string.format('%.0f', now)) end
  rescue(prefix, now, counters)
  prune(prefix, dead_jobs, dead_bytes, dead_ms, now, counters)
end
local wake = redis.call('GET', prefix .. 'wake')
if wake then
  redis.pcall('XACK', prefix .. 'stream', 'fastq', wake)
  redis.call('XDEL', prefix .. 'stream', wake)
  redis.call('DEL', prefix .. 'wake')
end
count(prefix, counters)
snapshot(prefix, now)
local gate, cancelled = redis.call('GET', prefix .. 'gate') or '', {}
if gate ~= '' then
  local length = redis.call('XLEN', prefix .. 'stream') + redis.call('XLEN', prefix .. 'front') + redis.call('XLEN', prefix .. 'suspects')
  if length == 0 and gate == 'cancelled' and redis.call('EXISTS', prefix .. 'parking') == 0 then
    -- No job is waiting or running: the wishes that are left came too late.
    redis.call('DEL', prefix .. 'cancelled', prefix .. 'gate')
    gate = ''
  else
    cancelled = redis.call('ZREVRANGE', prefix .. 'cancelled', 0, 999)
  end
end
return {STATUS.OK, due, promoted, back, lost + gone, (more or promoted == limit) and 1 or 0, gate, cancelled}
