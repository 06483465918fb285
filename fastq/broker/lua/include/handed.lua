-- @include head
-- The message of a job that gets the arguments of a later call: all but the payload is its own. `own` need not have a payload.
local function handed(own, later_call)
  local mine, call = head(own), head(later_call)
  local function payload_at(message, job)
    if job.flags % 16 < 8 then return job.extras_at end
    return job.extras_at + 4 + struct.unpack('<I4', message, job.extras_at)
  end
  local message = string.sub(own, 5, payload_at(own, mine) - 1) .. string.sub(later_call, payload_at(later_call, call))
  return struct.pack('<I4', #message) .. message
end
