#!lua flags=allow-oom
-- Tells a queue that workers live, and extends the locks that they hold for running jobs.
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2.. worker ids
-- Returns {OK, 1 | 0 per worker}: 0 for one that has not joined or is fenced
-- @include status
-- @include clock
-- @include member
local prefix, given, workers = KEYS[1], ARGV[1], ARGV
local now, alive = clock(given), {}
for i = 2, #workers do
  local worker = workers[i]
  if member(prefix, worker) then
    redis.call('ZADD', prefix .. 'consumers', string.format('%.0f', now), worker)
    alive[#alive + 1] = 1
  else
    alive[#alive + 1] = 0
  end
end
return {STATUS.OK, alive}
