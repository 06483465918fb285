#!lua flags=allow-oom
-- Enqueues dead jobs again, from attempt 1, with their uid, arguments, lock and id. One whose lock or id another job has taken
-- meanwhile stays dead.
-- Moves: dead -> waiting
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2.. uids, at most 200
-- Returns {OK, per uid: 1 replayed, 0 it is not dead, 2 its lock is held, 3 its id is in use}
-- @include status
-- @include clock
-- @include head
-- @include frames
-- @include mark
-- @include lockfor
-- @include count
local prefix, given, uids = KEYS[1], ARGV[1], ARGV
local dead, jobs, week, day = prefix .. 'dead', prefix .. 'jobs', 604800000, 86400000
local now, answers, messages, counters = clock(given), {}, {}, {waiting = 0, dead_bytes = 0, replayed = 0}
for i = 2, #uids do
  local uid = uids[i]
  local message = redis.call('ZSCORE', dead, uid) and redis.call('HGET', jobs, uid)
  if not message or #message < 48 then
    answers[i - 1] = 0
  else
    local job = head(message)
    local lock, id, taken = prefix .. 'unique:' .. job.lock, prefix .. 'id:' .. job.id, 1
    if job.id ~= '' then
      local owner = redis.call('GETRANGE', id, 0, 15)
      if owner ~= '' and owner ~= uid then taken = 3 end
    end
    if taken == 1 and job.lock ~= '' then
      local owner = redis.call('GETRANGE', lock, 0, 15)
      if (owner ~= '' and owner ~= uid) or redis.call('EXISTS', prefix .. 'parked:' .. job.lock) == 1 then taken = 2 end
    end
    if taken == 1 then
      job.due = nil
      if job.lock ~= '' then lockfor(lock, job, 'W', now) end
      if job.id ~= '' then redis.call('SET', id, uid .. 'W', 'PX', day) end
      if job.tracked then
        mark(prefix, uid, 'waiting', 1, now, week)
        redis.call('DEL', prefix .. 'result:' .. uid)
      end
      redis.call('ZREM', dead, uid)
      redis.call('HDEL', jobs, uid, uid .. '!')
      -- crashes 0, attempt 1
      messages[#messages + 1] = string.sub(message, 1, 6) .. '\0' .. string.sub(message, 8, 8) .. '\1\0' .. string.sub(message, 11)
      counters.dead_bytes = counters.dead_bytes - #message
    end
    answers[i - 1] = taken
  end
end
frames(prefix .. 'stream', messages)
counters.waiting, counters.replayed = #messages, #messages
count(prefix, counters)
return {STATUS.OK, answers}
