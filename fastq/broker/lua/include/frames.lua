-- Adds messages to a stream in frames of at most 64 messages or 64 KiB; returns how many entries that made.
local function frames(stream, messages, id)
  local entries, n, size, frame = 0, 0, 0, {}
  for i = 1, #messages + 1 do
    local message = messages[i]
    if n > 0 and (not message or n == 64 or size + #message > 65536) then
      local given = '*'
      if id then given = id() end
      redis.call('XADD', stream, given, 'f', table.concat(frame, '', 1, n))
      entries, n, size = entries + 1, 0, 0
    end
    if message then n, size = n + 1, size + #message frame[n] = message end
  end
  return entries
end
