#!lua flags=allow-oom
-- Tells a queue that workers live, and extends the `renew` locks of the jobs that they run.
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2.. worker ids
-- Returns {OK, 1 | 0 per worker}: 0 for one that has not joined or is fenced
-- @include clock
-- @include member
local prefix, given, workers = KEYS[1], ARGV[1], ARGV
local now, alive = clock(given), {}

-- One that is gone (evicted, or deleted by hand) is taken again; one that somebody else has is let go: he does not start while
-- this job runs.
local function extend(held)
  local locks = redis.call('HGETALL', held)
  for i = 1, #locks, 2 do
    local lock, uid, ms = prefix .. 'unique:' .. locks[i], string.sub(locks[i + 1], 1, 16), string.sub(locks[i + 1], 17)
    local owner = redis.call('GETRANGE', lock, 0, 15)
    if owner == uid then redis.call('PEXPIRE', lock, ms)
    elseif owner == '' then redis.call('SET', lock, uid .. 'R', 'PX', ms)
    else redis.call('HDEL', held, locks[i]) end
  end
  if #locks > 0 then redis.call('PEXPIRE', held, 86400000) end
end

for i = 2, #workers do
  local worker = workers[i]
  if member(prefix, worker) then
    redis.call('ZADD', prefix .. 'consumers', string.format('%.0f', now), worker)
    extend(prefix .. 'held:' .. worker)
    alive[#alive + 1] = 1
  else
    alive[#alive + 1] = 0
  end
end
return {STATUS.OK, alive}
