-- @include head
-- @include mark
-- A job that a worker had waits again: so says its record, if it is tracked (bit 16 of byte 6).
local function restart(prefix, message, now)
  if math.floor(string.byte(message, 6) / 16) % 2 == 1 then
    local job = head(message)
    if job.tracked then mark(prefix, job.uid, 'waiting', job.attempt, now, 604800000) end
  end
end
