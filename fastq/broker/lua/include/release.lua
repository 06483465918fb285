-- @include head
-- @include bump
-- @include enter
-- @include unpark
-- Ends a job's hold on its lock, in this order: the first parked job gets it, else the call that waits to rerun, else (if `free`)
-- nobody. A call that waits follows the lock: to the parked job, or to whoever has taken the lock since it expired.
-- Returns whether the lock was the job's own.
local function release(prefix, suffix, uid, free, now, counters)
  local lock, pending = prefix .. 'unique:' .. suffix, prefix .. 'pending'
  local owner = redis.call('GETRANGE', lock, 0, 15)
  local rerun = redis.call('HGET', pending, uid)
  if rerun then redis.call('HDEL', pending, uid) end
  if owner == uid or owner == '' then
    local heir = (free or rerun) and unpark(prefix, suffix, now, counters)
    if heir then
      if rerun then redis.call('HSET', pending, heir, rerun) end
    elseif rerun then
      enter(prefix, 'stream', rerun, '*', now, counters)
      bump(counters, 'enqueued', 1)
    elseif free and owner == uid then
      redis.call('DEL', lock)
    end
  elseif rerun then
    local other = redis.call('HGET', pending, owner)
    if not other or head(other).enqueued <= head(rerun).enqueued then redis.call('HSET', pending, owner, rerun) end
  end
  return owner == uid
end
