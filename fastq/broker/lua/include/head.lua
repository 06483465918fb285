-- The fixed part and the names of a message (docs/architecture.md, "Message"); its payload is never looked at.
local function head(message)
  local _, version, flags, crashes, policy, attempt, uid, enqueued, task, lock, id, ttl =
    struct.unpack('<I4BBBBI2c16I8I2I2I2I8', message)
  local at = 49
  -- Of another version only the fixed part is known; it is kept for a worker that knows the rest.
  if version ~= 1 then flags, policy, task, lock, id = 0, 0, 0, 0, 0 end
  local job = {uid = uid, version = version, flags = flags, crashes = crashes, attempt = attempt, enqueued = enqueued, ttl = ttl,
    until_ = policy % 4, renew = policy % 8 >= 4, conflict = math.floor(policy / 8) % 4, tracked = flags % 32 >= 16}
  job.task = string.sub(message, at, at + task - 1)
  at = at + task
  job.lock = string.sub(message, at, at + lock - 1)
  at = at + lock
  job.id = string.sub(message, at, at + id - 1)
  at = at + id
  for i, name in ipairs({'due', 'expires', 'retention'}) do
    -- One that is announced but is not there (a corrupt message) must not end the script.
    if flags % 2 ^ i >= 2 ^ (i - 1) and at + 7 <= #message then job[name], at = struct.unpack('<I8', message, at) end
  end
  job.extras_at = at -- where the extras begin, if there are any, else the payload
  return job
end
