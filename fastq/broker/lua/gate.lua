#!lua flags=allow-oom
-- Pauses a queue or lets it go on. Nothing is started while it is paused; what runs goes on.
-- KEYS  1 prefix of the queue
-- ARGV  1 "pause" | "resume"
-- Returns {OK, 1 if that changed anything, else 0}
local prefix, what = KEYS[1], ARGV[1]
local gate = prefix .. 'gate'
local paused = redis.call('GET', gate) == 'paused'
if what == 'pause' then
  redis.call('SET', gate, 'paused')
elseif redis.call('ZCARD', prefix .. 'cancelled') > 0 then
  redis.call('SET', gate, 'cancelled')
else
  redis.call('DEL', gate)
end
return {STATUS.OK, (what == 'pause') ~= paused and 1 or 0}
