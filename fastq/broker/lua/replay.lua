#!lua flags=allow-oom
-- Enqueues dead jobs again, from attempt 1, with their uid, arguments, lock and id. One whose lock or id another job has taken
-- meanwhile stays dead. What could not be read as a message comes back as the bytes that it was.
-- Moves: dead -> waiting
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2.. uids, at most 200
-- Returns {OK, answers}: per uid 1 replayed, 0 it is not dead, 2 its lock is held, 3 its id is in use. There are fewer answers
--         than uids when the first jobs were large: the others are for the next call.
-- @include clock
-- @include head
-- @include frames
-- @include mark
-- @include lockfor
-- @include count
local prefix, given, uids = KEYS[1], ARGV[1], ARGV
local call, sub, dead, jobs, stream = redis.call, string.sub, prefix .. 'dead', prefix .. 'jobs', prefix .. 'stream'
local week, day, most_bytes, size = 604800000, 86400000, 1048576, 0
local now, answers, messages, counters = clock(given), {}, {}, {waiting = 0, dead_bytes = 0, replayed = 0}

-- 2 or 3 for a job whose lock or id is another's by now, else 1.
local function allowed(job, uid)
  if job.id ~= '' then
    local owner = call('GETRANGE', prefix .. 'id:' .. job.id, 0, 15)
    if owner ~= '' and owner ~= uid then return 3 end
  end
  if job.lock ~= '' then
    local owner = call('GETRANGE', prefix .. 'unique:' .. job.lock, 0, 15)
    if (owner ~= '' and owner ~= uid) or call('EXISTS', prefix .. 'parked:' .. job.lock) == 1 then return 2 end
  end
  return 1
end

-- The message as that of a new job: no crashes, attempt 1, enqueued now, and as long to its expiry as it had then.
local function anew(message, job)
  local fresh = sub(message, 1, 6) .. '\0' .. sub(message, 8, 8) .. '\1\0' .. sub(message, 11, 26) ..
    struct.pack('<I8', now) .. sub(message, 35)
  if not job.expires then return fresh end
  local at = 49 + #job.task + #job.lock + #job.id + (job.due and 8 or 0)
  return sub(fresh, 1, at - 1) .. struct.pack('<I8', now + job.expires - (job.due or job.enqueued)) .. sub(fresh, at + 8)
end

-- What is no message: the bytes that a worker packed as [[bytes], {}], with a head of 2, 3 or 5 bytes, when it could not read
-- them, or noise that only looked like one. Nil for a message.
local function unreadable(message, job)
  if struct.unpack('<I4', message) ~= #message - 4 then return message end
  if job.task ~= 'fastq:unreadable' then return nil end
  local at = 49 + #job.task + 2
  local kind = string.byte(message, at) or 0
  return kind >= 0xC4 and kind <= 0xC6 and sub(message, at + 1 + 2 ^ (kind - 0xC4), -2) or message
end

local function replay(message, job, uid)
  local bytes = unreadable(message, job)
  if bytes then
    -- An entry of its own: in a frame it would keep what is behind it from being read. What it says of a lock or an id is noise.
    call('XADD', stream, '*', 'f', bytes)
    job.lock, job.id, job.tracked = '', '', false
  else
    messages[#messages + 1] = anew(message, job)
  end
  job.due = nil
  if job.lock ~= '' then lockfor(prefix .. 'unique:' .. job.lock, job, 'W', now) end
  if job.id ~= '' then call('SET', prefix .. 'id:' .. job.id, uid .. 'W', 'PX', day) end
  if job.tracked then
    mark(prefix, uid, 'waiting', 1, now, week)
    call('DEL', prefix .. 'result:' .. uid)
  end
  call('ZREM', dead, uid)
  call('HDEL', jobs, uid, uid .. '!')
  counters.dead_bytes = counters.dead_bytes - #message
  counters.replayed = counters.replayed + 1
end

for i = 2, #uids do
  local uid = uids[i]
  local message = call('ZSCORE', dead, uid) and call('HGET', jobs, uid)
  answers[i - 1] = 0
  if message and #message >= 48 then
    local job = head(message)
    answers[i - 1] = unreadable(message, job) and 1 or allowed(job, uid)
    if answers[i - 1] == 1 then
      replay(message, job, uid)
      size = size + #message
      if size > most_bytes then break end
    end
  end
end
frames(stream, messages)
counters.waiting = #messages
count(prefix, counters)
return {STATUS.OK, answers}
