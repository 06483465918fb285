#!lua flags=allow-oom
-- Asks that a job does not run. One that is scheduled ends here and now; of any other the wish is kept, and obeyed by the worker
-- that has it or will get it.
-- Moves: scheduled, retrying -> cancelled
-- KEYS  1 prefix of the queue
-- ARGV  1 uid, or "" · 2 explicit id, or "" · 3 now ms, or ""
-- Returns {OK, 1 if it will not start any more, else 0} | {MISSING}: nobody uses this id
-- @include clock
-- @include head
-- @include holder
-- @include unschedule
-- @include finish
-- @include count
local prefix, uid, id, given = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local week, most = 604800000, 100000
local cancelled, gate = prefix .. 'cancelled', prefix .. 'gate'
if uid == '' then uid = holder(prefix, id) end
if uid == '' then return {STATUS.MISSING} end
local now, counters = clock(given), {}
local message = unschedule(prefix, uid, counters)
if message then
  local job = head(message)
  finish(prefix, job, 'cancelled', job.attempt > 1, now, counters)
  counters.cancelled = 1
  counters['cancelled:' .. job.task] = 1
  count(prefix, counters)
  return {STATUS.OK, 1}
end
if redis.call('ZSCORE', prefix .. 'dead', uid) then return {STATUS.OK, 0} end
local state = redis.call('GET', prefix .. 'job:' .. uid)
state = state and string.match(state, '^%a+')
if state and state ~= 'waiting' and state ~= 'running' then return {STATUS.OK, 0} end
redis.call('ZREMRANGEBYSCORE', cancelled, '-inf', string.format('%.0f', now - week))
redis.call('ZADD', cancelled, string.format('%.0f', now), uid)
redis.call('ZREMRANGEBYRANK', cancelled, 0, -most - 1)
if redis.call('EXISTS', gate) == 0 then redis.call('SET', gate, 'cancelled') end
return {STATUS.OK, 0}
