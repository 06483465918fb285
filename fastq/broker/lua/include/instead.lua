-- @include head
-- The message of a call that takes the place of a scheduled one: its arguments and options, but the uid, the time of the enqueue,
-- the id with its retention, and the record of the other. `due`: when the job falls due now.
local function instead(message, other, due)
  local job = head(message)
  local retention = other.retention or job.retention
  local flags = 1 + (job.expires and 2 or 0) + (retention and 4 or 0) + (job.flags % 16 >= 8 and 8 or 0)
  if job.tracked or other.tracked then flags = flags + 16 end
  local parts = {
    string.sub(message, 5, 5), string.char(flags), string.sub(message, 7, 10), other.uid, struct.pack('<I8', other.enqueued),
    string.sub(message, 35, 38), struct.pack('<I2', #other.id), string.sub(message, 41, 48), job.task, job.lock, other.id,
    struct.pack('<I8', due), job.expires and struct.pack('<I8', job.expires) or '',
    retention and struct.pack('<I8', retention) or '', string.sub(message, job.extras_at),
  }
  local made = table.concat(parts)
  return struct.pack('<I4', #made) .. made
end
