#!lua flags=allow-oom
-- Asks whether jobs that got a slot may start, and takes note that they do.
-- Moves: waiting -> running
-- KEYS  1 prefix of the queue
-- ARGV  1 worker id · 2 now ms, or "" · 3 ms that the state of a tracked job is kept · 4.. messages up to their payloads
-- Returns {OK, verdicts: a letter per job, g go · c cancelled · p the queue is paused} | {FENCED}
-- @include status
-- @include clock
-- @include member
-- @include head
-- @include mark
local prefix, worker, given, track_ms, arg = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV
local call = redis.call
if not member(prefix, worker) then return {STATUS.FENCED} end
local now, verdicts = clock(given), {}
local gate = call('GET', prefix .. 'gate')
for i = 4, #arg do
  local job = head(arg[i])
  if gate and call('ZSCORE', prefix .. 'cancelled', job.uid) then
    verdicts[#verdicts + 1] = 'c'
  elseif gate == 'paused' then
    verdicts[#verdicts + 1] = 'p'
  else
    verdicts[#verdicts + 1] = 'g'
    if job.lock ~= '' then
      local lock = prefix .. 'unique:' .. job.lock
      if call('GETRANGE', lock, 0, 15) == job.uid then
        if job.until_ == 2 then call('DEL', lock) else call('SETRANGE', lock, 16, 'R') end
      end
    end
    if job.tracked then mark(prefix, job.uid, 'running', job.attempt, now, tonumber(track_ms)) end
  end
end
return {STATUS.OK, table.concat(verdicts)}
