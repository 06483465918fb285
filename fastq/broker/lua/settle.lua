#!lua flags=allow-oom
-- Ends the turns of a batch of jobs: acknowledges, unlocks, schedules retries, buries the dead, hands back what was not started.
-- Moves: running -> succeeded | dropped | retrying | dead | cancelled · waiting -> expired | waiting (handed back)
-- KEYS  1 prefix of the queue
-- ARGV  1 worker id · 2 call number · 3 now ms, or "" · 4 jobs handed out since the last report · 5.. sections, each a number n and
--       n times its items, in this order:
--       done in stream: entry id · done in front: entry id · done in suspects: entry id
--       progress: entry id, bitmap of settled places
--       locks to release: (n > 0: first all uids in one string) lock key
--       counters: name, by
--       ends: final state, 1 if it had been tried, message up to its payload
--       retries: due ms, message
--       dead: message, why ("" when the message says it)
--       back: jobs, frame
--       results: uid, ms to keep, value
-- Returns {OK, locks that were no longer the job's} | {FENCED} | {STALE}
local prefix, worker, number, given, handed_out, arg = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV
local call, sub, calls = redis.call, string.sub, prefix .. 'calls:' .. worker

-- @include member
-- @include answered
if not member(prefix, worker) then return {STATUS.FENCED} end
local reply, stale = answered(calls, number)
if reply then return reply end
if stale then return {STATUS.STALE} end

local at, counters, progress = 5, {waiting = -handed_out}, prefix .. 'progress'

for _, name in ipairs({'stream', 'front', 'suspects'}) do
  local n, stream = tonumber(arg[at]), prefix .. name
  for from = at + 1, at + n, 1000 do
    local to = math.min(from + 999, at + n)
    call('XACK', stream, 'fastq', unpack(arg, from, to))
    call('XDEL', stream, unpack(arg, from, to))
    -- Only frames of many jobs have progress; an entry is looked up there when there is any at all.
    if call('EXISTS', progress) == 1 then call('HDEL', progress, unpack(arg, from, to)) end
  end
  at = at + 1 + n
end

local n = tonumber(arg[at])
for i = at + 1, at + 2 * n, 2 do call('HSET', progress, arg[i], arg[i + 1]) end
at = at + 1 + 2 * n

-- @include bump
-- @include lost
-- Locks of the plain kind go in two commands, unless a later call or a parked job may wait for one of them.
local suffix_at, locks, uids, first = #prefix + 8, tonumber(arg[at]), arg[at + 1], at + 2 -- a suffix is what is behind "unique:"
local awaited = locks > 0 and call('EXISTS', prefix .. 'pending', prefix .. 'parking') > 0
local mine = {}
for begin = 1, awaited and 0 or locks, 1000 do
  local last = math.min(begin + 999, locks)
  local owners = call('MGET', unpack(arg, first + begin - 1, first + last - 1))
  for i = begin, last do
    local lock, owner = arg[first + i - 1], owners[i - begin + 1]
    if owner and sub(owner, 1, 16) == sub(uids, 16 * i - 15, 16 * i) then mine[#mine + 1] = lock
    else lost(counters, sub(lock, suffix_at)) end
  end
end
for begin = 1, #mine, 1000 do call('DEL', unpack(mine, begin, math.min(begin + 999, #mine))) end
at = at + 1 + (locks > 0 and 1 + locks or 0)

n = tonumber(arg[at])
for i = at + 1, at + 2 * n, 2 do bump(counters, arg[i], tonumber(arg[i + 1])) end
at = at + 1 + 2 * n

-- @include count
-- @include answer
local function done()
  count(prefix, counters)
  return answer(calls, number, {STATUS.OK, counters.locks_lost or 0}, 86400000)
end

-- Most reports end here: the five sections that follow are empty.
if not awaited and #arg == at + 4 then return done() end

-- @include clock
-- @include head
-- @include mark
-- @include later
-- @include above
-- @include split
-- @include release
-- @include restart
-- @include unstart
-- @include finish
-- @include bury
local now, handed = clock(given), prefix .. 'handed'

for i = 1, awaited and locks or 0 do
  local suffix = sub(arg[first + i - 1], suffix_at)
  if not release(prefix, suffix, sub(uids, 16 * i - 15, 16 * i), true, now, counters) then lost(counters, suffix) end
end

-- Calls `each` with where an item of the section begins, `width` apart, and steps over the section.
local function section(width, each)
  local items = tonumber(arg[at])
  for i = 0, items - 1 do each(at + 1 + i * width) end
  at = at + 1 + items * width
end

section(3, function(i)
  local job = head(arg[i + 2])
  if job.renew then call('HDEL', prefix .. 'held:' .. worker, job.lock) end
  finish(prefix, job, arg[i], arg[i + 1] == '1', now, counters)
end)
section(2, function(i)
  local message = arg[i + 1]
  local job = head(message)
  later(prefix, job.uid, tonumber(arg[i]), message, now)
  if job.attempt > 1 then bump(counters, 'retrying', 1) end
  if job.lock ~= '' then
    unstart(prefix, worker, job, 'S', tonumber(arg[i]), now, counters)
    call('HDEL', handed, job.uid)
  end
  if job.tracked then mark(prefix, job.uid, 'retrying', job.attempt, now, tonumber(arg[i]) - now + 86400000) end
  if job.id ~= '' then call('PEXPIRE', prefix .. 'id:' .. job.id, string.format('%.0f', tonumber(arg[i]) - now + 86400000)) end
end)
section(2, function(i)
  local job = head(arg[i])
  if job.renew then call('HDEL', prefix .. 'held:' .. worker, job.lock) end
  bury(prefix, job.uid, arg[i], arg[i + 1], now, counters)
  finish(prefix, job, 'dead', true, now, counters)
end)
local next_id
section(2, function(i)
  local lane = 'front'
  for _, message in ipairs(split(arg[i + 1], '')) do
    if #message >= 48 then
      restart(prefix, message, now)
      -- Byte 7 counts the crashes: a suspect stays in its lane, in a frame of its own.
      if string.byte(message, 7) > 1 then lane = 'suspects' end
    end
    if #message >= 48 and struct.unpack('<I2', message, 37) > 0 then -- it has a lock, in which its start may be noted
      local job = head(message)
      unstart(prefix, worker, job, 'W', now, now, counters)
      call('HDEL', handed, job.uid)
      next_id = nil -- a parked job may have come in
    end
  end
  next_id = next_id or above(prefix, now)
  call('XADD', prefix .. lane, next_id(), 'f', arg[i + 1])
  bump(counters, 'waiting', tonumber(arg[i]))
end)
section(3, function(i)
  local key = prefix .. 'result:' .. arg[i]
  call('XADD', key, 'MAXLEN', 1, '*', 'r', arg[i + 2])
  call('PEXPIRE', key, arg[i + 1])
end)
return done()
