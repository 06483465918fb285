#!lua
-- Adds jobs to a queue. A job's lock, its id and its message are written together or not at all.
-- Moves: (new) -> waiting | scheduled
-- KEYS  1 prefix of the queue
-- ARGV  1 lane id, or "" for a call that is never repeated · 2 call number · 3 now ms, or ""
--       4 jobs in this call · 5 most jobs that may wait, 0: no bound · 6.. groups (docs/architecture.md, "Calls")
-- Returns {OK, refusals} with per refusal: index, "duplicate" | "conflict", uid of the holder, its state byte, ms left,
--         what came of it: "raise" | "skipped" | "replaced" | "rerun"
--         {FULL, jobs that wait} | {STALE}: a later call of the lane was seen
local prefix = KEYS[1]
local lane, number, given, jobs, bound, arg = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV
local call, sub, stream, stats = redis.call, string.sub, prefix .. 'stream', prefix .. 'stats'

-- What is called most often: a plain job that comes alone.
if lane == '' and bound == 0 and #arg == 7 then
  call('XADD', stream, '*', 'f', arg[7])
  call('HINCRBY', stats, 'enqueued', jobs)
  call('HINCRBY', stats, 'waiting', jobs)
  return {STATUS.OK, {}}
end

local lane_key, lane_ms = prefix .. 'lane:' .. lane, 600000
-- @include answered
if lane ~= '' then
  local reply, stale = answered(lane_key, number)
  if reply then return reply end
  if stale then return {STATUS.STALE} end
end
if bound > 0 then
  local waiting = tonumber(call('HGET', stats, 'waiting') or 0) + call('ZCARD', prefix .. 'scheduled')
  if waiting + tonumber(jobs) > bound then return {STATUS.FULL, waiting} end
end

-- @include answer
local function reply(refusals)
  local said = {STATUS.OK, refusals}
  if lane == '' then return said end
  return answer(lane_key, number, said, lane_ms)
end

-- Most calls bring frames of plain jobs, or of jobs whose locks are free, and nothing else: they are added as they came.
-- `taken`: the locks and ids of jobs that are not written yet; they are given back if a write fails.
local at, index, taken, parking = 6, 0, {}, nil
while at <= #arg and string.byte(arg[at]) ~= 71 do -- G
  local n, last = tonumber(sub(arg[at], 2)), at + 1
  if string.byte(arg[at]) == 85 then -- U
    if parking == nil then parking = call('EXISTS', prefix .. 'parking') == 1 end
    local ttl, values = arg[at + 2], arg[at + 3]
    last = at + 3 + n
    for i = 1, parking and 0 or n do
      if not call('SET', arg[at + 3 + i], sub(values, 17 * i - 16, 17 * i), 'NX', 'PX', ttl) then break end
      taken[i] = arg[at + 3 + i]
    end
    if #taken < n then break end
  end
  local added = redis.pcall('XADD', stream, '*', 'f', arg[at + 1])
  if added.err then
    for i = 1, #taken do redis.pcall('DEL', taken[i]) end
    return added
  end
  at, index, taken = last + 1, index + n, {}
end
if at > #arg then
  call('HINCRBY', stats, 'enqueued', jobs)
  call('HINCRBY', stats, 'waiting', jobs)
  return reply({})
end

-- @include clock
-- @include count
-- @include bump
-- @include mark
-- @include later
-- @include frames
-- @include head
-- @include instead
local refusals, counters, singles, waiting, now = {}, {}, {}, index, nil

local function refuse(kind, place, key, task, outcome, holder)
  holder = holder or call('GET', key) or ''
  local n = #refusals
  refusals[n + 1], refusals[n + 2], refusals[n + 3] = place, kind, sub(holder, 1, 16)
  refusals[n + 4], refusals[n + 5], refusals[n + 6] = sub(holder, 17, 17), call('PTTL', key), outcome
  if outcome == 'raise' then outcome = 'refused' end
  bump(counters, outcome, 1)
  bump(counters, outcome .. ':' .. task, 1)
end

-- The first job that is parked behind a lock; while there is one, the key counts as held.
local function first_parked(lock)
  if parking == nil then parking = call('EXISTS', prefix .. 'parking') == 1 end
  return parking and call('LINDEX', prefix .. 'parked:' .. sub(lock, #prefix + 8), 0)
end

-- Whether a scheduled job has a lock whose job is not there: its body was lost.
local function ownerless(value)
  if sub(value, 17) ~= 'S' then return false end
  local uid = sub(value, 1, 16)
  return not (call('ZSCORE', prefix .. 'scheduled', uid) and call('HEXISTS', prefix .. 'jobs', uid) == 1)
end

-- Takes a lock. If somebody has it: the value of the lock, or what it would be.
local function take(lock, value, ttl)
  local parked = first_parked(lock)
  if not parked and call('SET', lock, value, 'NX', 'PX', ttl) then return nil end
  local held = call('GET', lock) or sub(parked, 11, 26) .. 'W'
  if parked or not ownerless(held) then return held end
  call('SET', lock, value, 'PX', ttl)
  return nil
end

-- What comes of a call under a lock that is held, by its on_conflict: 0 raise, 1 skip, 2 replace, 3 rerun. Whether it gets the lock
-- all the same.
local function takes_over(message, lock, lock_ttl, due, max_wait, value)
  local job, holder, state = head(message), sub(value, 1, 16), sub(value, 17)
  if job.conflict < 2 or holder == job.uid then
    refuse('duplicate', index, lock, job.task, job.conflict == 1 and 'skipped' or 'raise', value)
    return false
  end
  if state == 'E' then return true end -- it has ended: it will not hand this call on
  now = now or clock(given)
  local body = job.conflict == 2 and state == 'S' and call('HGET', prefix .. 'jobs', holder)
  local held = body and head(body)
  if held and held.attempt == 1 then
    due = due ~= '' and tonumber(due) or now
    if max_wait ~= '' then due = math.min(due, math.max(now, held.enqueued + tonumber(max_wait))) end
    later(prefix, holder, due, instead(message, held, due), now)
    call('HDEL', prefix .. 'pending', holder, holder .. '+') -- an older call
    call('PEXPIRE', lock, lock_ttl)
    local kept = string.format('%.0f', due - now + 86400000)
    if held.id ~= '' then call('PEXPIRE', prefix .. 'id:' .. held.id, kept) end
    if held.tracked or job.tracked then mark(prefix, holder, 'scheduled', 1, now, due - now + 86400000) end
    refuse('duplicate', index, lock, job.task, 'replaced', value)
    return false
  end
  call('HSET', prefix .. 'pending', holder, message)
  call('HDEL', prefix .. 'pending', holder .. '+')
  refuse('duplicate', index, lock, job.task, job.conflict == 2 and state == 'W' and 'replaced' or 'rerun', value)
  return false
end

local function flush_singles()
  frames(stream, singles)
  waiting, singles, taken = waiting + #singles, {}, {}
end

-- A frame whose jobs have one lock each, of which the first may be taken already. It is added as it came unless one of them is
-- refused.
local function unique_frame(frame, n, ttl, values, at)
  local refused
  for i = #taken + 1, n do
    local key = arg[at + i]
    local held = take(key, sub(values, 17 * i - 16, 17 * i), ttl)
    if held then
      refused = refused or {}
      refused[i] = held
    else
      taken[#taken + 1] = key
    end
  end
  if not refused then
    call('XADD', stream, '*', 'f', frame)
    waiting, taken = waiting + n, {}
    return
  end
  local from = 1
  for i = 1, n do
    local message = sub(frame, from, from + 3 + struct.unpack('<I4', frame, from))
    from = from + #message
    if refused[i] then
      local job = head(message)
      refuse('duplicate', index + i - 1, arg[at + i], job.task, job.conflict == 1 and 'skipped' or 'raise', refused[i])
    else
      singles[#singles + 1] = message
    end
  end
end

local function single(message, due, lock, lock_ttl, id, id_ttl, track, max_wait)
  local uid, unwritten = sub(message, 11, 26), #taken
  local state = due == '' and 'W' or 'S'
  if id ~= '' and call('EXISTS', id) == 1 then return refuse('conflict', index, id, head(message).task, 'raise') end
  if lock ~= '' then
    local held = take(lock, uid .. state, lock_ttl)
    if held then
      if not takes_over(message, lock, lock_ttl, due, max_wait, held) then return end
      call('SET', lock, uid .. state, 'PX', lock_ttl)
    end
    taken[#taken + 1] = lock
  end
  if id ~= '' then
    call('SET', id, uid .. state, 'PX', id_ttl)
    taken[#taken + 1] = id
  end
  now = now or clock(given)
  if track ~= '' then mark(prefix, uid, due == '' and 'waiting' or 'scheduled', 1, now, track) end
  if due == '' then
    singles[#singles + 1] = message
  else
    later(prefix, uid, tonumber(due), message, now)
    for i = #taken, unwritten + 1, -1 do taken[i] = nil end
  end
end

local function run()
  while at <= #arg do
    local kind, n = string.byte(arg[at]), 1
    if kind == 71 then -- G
      single(arg[at + 1], arg[at + 2], arg[at + 3], arg[at + 4], arg[at + 5], arg[at + 6], arg[at + 7], arg[at + 8])
      at = at + 9
    else
      if singles[1] then flush_singles() end
      n = tonumber(sub(arg[at], 2))
      if kind == 85 then -- U
        unique_frame(arg[at + 1], n, arg[at + 2], arg[at + 3], at + 3)
        at = at + 4 + n
      else -- F
        call('XADD', stream, '*', 'f', arg[at + 1])
        waiting = waiting + n
        at = at + 2
      end
    end
    index = index + n
  end
  flush_singles()
end

local ok, problem = pcall(run)
if not ok then
  for i = 1, #taken do redis.pcall('DEL', taken[i]) end
  return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
local refused = #refusals / 6
counters.enqueued, counters.waiting = index - refused, waiting
count(prefix, counters)
return reply(refusals)
