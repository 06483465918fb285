-- @include head
-- @include later
-- @include lockfor
-- @include mark
-- @include bump
-- Puts a message that was kept on the server into the queue as a job of its own, with the lock that was held for it.
local function enter(prefix, stream, message, id, now, counters)
  local job = head(message)
  local due = job.due and job.due > now and job.due or nil
  lockfor(prefix .. 'unique:' .. job.lock, job, due and 'S' or 'W', now)
  if job.tracked then mark(prefix, job.uid, due and 'scheduled' or 'waiting', job.attempt, now, 86400000 + (due and due - now or 0)) end
  if due then
    later(prefix, job.uid, due, message, now)
  else
    redis.call('XADD', prefix .. stream, id, 'f', message)
    bump(counters, 'waiting', 1)
  end
end
