#!lua flags=allow-oom
-- Asks whether jobs that got a slot may start, and takes note that they do. A lock that ends at the start is released. A job with a
-- `renew` lock makes sure that the lock is its own: one that is gone is taken again, one that a waiting job took is taken over, and
-- behind one whose holder is running the job is parked. A job for which a later call waits gets that call's arguments.
-- Moves: waiting -> running | parked
-- KEYS  1 prefix of the queue
-- ARGV  1 worker id · 2 call number · 3 now ms, or "" · 4 ms that the state of a tracked job, and its id, are kept · 5 lease ms
--       6.. per job: stream ("stream" | "front" | "suspects"), entry id, place, message up to its payload
-- Returns {OK, verdicts, messages} | {FENCED} | {STALE}: a letter per job, g go · n go, as the next of `messages`: the job with other
--         arguments · c cancelled · p not now: the queue is paused · k parked, its turn is over
-- @include clock
-- @include member
-- @include head
-- @include mark
-- @include answered
-- @include answer
-- @include body
-- @include pick
-- @include settled
-- @include runs
-- @include handed
local prefix, worker, number, given, track_ms, lease, arg =
  KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV
local call, starts = redis.call, prefix .. 'starts:' .. worker
if not member(prefix, worker) then return {STATUS.FENCED} end
local reply, stale = answered(starts, number)
if reply then return reply end
if stale then return {STATUS.STALE} end
local now, verdicts, messages = clock(given), {}, {}
local gate, pending, handed_key = call('GET', prefix .. 'gate'), prefix .. 'pending', prefix .. 'handed'
local any_pending, any_handed = call('EXISTS', pending) == 1, call('EXISTS', handed_key) == 1

-- Whether the job may start, its lock being its own or not needed.
local function locked(job, lock)
  local value = call('GET', lock)
  local owner, state = value and string.sub(value, 1, 16), value and string.sub(value, 17)
  if job.until_ == 2 then
    if owner == job.uid then call('DEL', lock) end
  elseif not job.renew then
    if owner == job.uid then call('SETRANGE', lock, 16, 'R') end
  elseif runs(prefix, job.lock, job.uid) or (owner and owner ~= job.uid and state == 'R') then
    return false
  else
    local ms = string.format('%.0f', math.max(job.ttl, 2 * lease))
    call('SET', lock, job.uid .. 'R', 'PX', ms)
    call('HSET', prefix .. 'held:' .. worker, job.lock, job.uid .. ms)
    call('PEXPIRE', prefix .. 'held:' .. worker, 86400000)
    call('HSET', prefix .. 'running', job.lock, job.uid .. worker)
  end
  return true
end

-- Puts a job behind the one that runs; false if it cannot be had as a whole.
local function park(job, stream, id, place)
  local frame = body(prefix .. stream, id)
  local message = frame and pick(frame, place)
  if not message then return false end
  call('RPUSH', prefix .. 'parked:' .. job.lock, message)
  call('SADD', prefix .. 'parking', job.lock)
  settled(prefix, id, place)
  return true
end

-- The job with the arguments of the call that was left to it, or that it has started with before. They are kept beside the frame
-- until the job has ended, for the worker may not live to that.
local function with_later_call(job, own)
  local later_call = any_pending and call('HGET', pending, job.uid)
  if not later_call then return any_handed and call('HGET', handed_key, job.uid) end
  local message = handed(own, later_call)
  call('HDEL', pending, job.uid)
  call('HSET', handed_key, job.uid, message)
  return message
end

for i = 6, #arg, 4 do
  local job = head(arg[i + 3])
  local verdict = 'g'
  if gate and call('ZSCORE', prefix .. 'cancelled', job.uid) then
    verdict = 'c'
  elseif gate == 'paused' then
    verdict = 'p'
  elseif job.lock ~= '' and not locked(job, prefix .. 'unique:' .. job.lock) then
    verdict = park(job, arg[i], arg[i + 1], tonumber(arg[i + 2])) and 'k' or 'p'
  else
    local message = job.lock ~= '' and with_later_call(job, arg[i + 3])
    if message then verdict, messages[#messages + 1] = 'n', message end
    if job.id ~= '' and call('GETRANGE', prefix .. 'id:' .. job.id, 0, 15) == job.uid then
      call('PEXPIRE', prefix .. 'id:' .. job.id, string.format('%.0f', track_ms))
    end
    if job.tracked then mark(prefix, job.uid, 'running', job.attempt, now, track_ms) end
  end
  verdicts[#verdicts + 1] = verdict
end
return answer(starts, number, {STATUS.OK, table.concat(verdicts), messages}, 86400000)
