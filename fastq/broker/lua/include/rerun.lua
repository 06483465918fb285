-- @include head
-- Leaves a call to the job that has the lock now, to be run after it as a job of its own ("+"): its arguments are no later than that
-- job's, which does not take them at its start. Of two calls the later one stays.
local function rerun(prefix, uid, message)
  local pending = prefix .. 'pending'
  local other = redis.call('HGET', pending, uid) or redis.call('HGET', pending, uid .. '+')
  if other then
    local theirs, ours = head(other), head(message)
    -- Within a millisecond their uids tell which came first.
    if theirs.enqueued > ours.enqueued or (theirs.enqueued == ours.enqueued and theirs.uid > ours.uid) then return end
  end
  redis.call('HDEL', pending, uid)
  redis.call('HSET', pending, uid .. '+', message)
end
