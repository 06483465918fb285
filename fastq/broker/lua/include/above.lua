-- Gives ids above the last of all three streams of a queue, so that a job that comes back has a higher fence than before. The
-- main stream is moved up to each, so that no id and no fence stands for two deliveries.
local function above(prefix, now)
  local ms, seq = now, -1
  for _, name in ipairs({'stream', 'front', 'suspects'}) do
    local info = redis.pcall('XINFO', 'STREAM', prefix .. name)
    if not info.err then
      for i = 1, #info, 2 do
        if info[i] == 'last-generated-id' then
          local dash = string.find(info[i + 1], '-', 1, true)
          local last_ms, last_seq = tonumber(string.sub(info[i + 1], 1, dash - 1)), tonumber(string.sub(info[i + 1], dash + 1))
          if last_ms > ms or (last_ms == ms and last_seq > seq) then ms, seq = last_ms, last_seq end
        end
      end
    end
  end
  return function()
    seq = seq + 1
    local id = string.format('%.0f-%.0f', ms, seq)
    redis.pcall('XSETID', prefix .. 'stream', id)
    return id
  end
end
