-- @include head
-- Leaves a call to a job that will hand it on at its end, or take its arguments at its start, unless a later one is left there.
local function rerun(prefix, uid, message)
  local pending = prefix .. 'pending'
  local other = redis.call('HGET', pending, uid)
  if not other or head(other).enqueued <= head(message).enqueued then redis.call('HSET', pending, uid, message) end
end
