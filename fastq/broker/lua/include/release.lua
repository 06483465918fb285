-- @include bump
-- @include enter
-- @include rerun
-- @include runs
-- @include unpark
-- Ends a job's hold on its lock. The first parked job comes in with the lock, unless another job runs under it; else the call that
-- waits to rerun; else the lock goes (`free`) or tells that its job has ended (E). A call that waits follows the lock: to the
-- parked job, or to whoever has taken the lock since it expired. Returns whether the lock was the job's own.
local function release(prefix, suffix, uid, free, now, counters)
  local lock, pending = prefix .. 'unique:' .. suffix, prefix .. 'pending'
  local value = redis.call('GET', lock) or ''
  local owner, state = string.sub(value, 1, 16), string.sub(value, 17)
  local other = owner ~= '' and owner ~= uid and state ~= 'E' -- one that has ended hands nothing on
  local call = redis.call('HGET', pending, uid) or redis.call('HGET', pending, uid .. '+')
  if call then redis.call('HDEL', pending, uid, uid .. '+') end
  local busy = runs(prefix, suffix, uid) or (other and state == 'R')
  local heir = not busy and unpark(prefix, suffix, now, counters)
  if heir then
    if call then rerun(prefix, heir, call) end
  elseif other then
    if call then rerun(prefix, owner, call) end
  elseif call then
    -- It is enqueued only now, as a job of its own: so says the time in it (bytes 27 to 34).
    enter(prefix, 'stream', string.sub(call, 1, 26) .. struct.pack('<I8', now) .. string.sub(call, 35), '*', now, counters)
    bump(counters, 'enqueued', 1)
  elseif owner == uid then
    if free then redis.call('DEL', lock) else redis.call('SETRANGE', lock, 16, 'E') end
  end
  return owner == uid
end
