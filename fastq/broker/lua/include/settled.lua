-- Notes that the job at a place of an entry has had its turn, beside what is noted already.
local function settled(prefix, id, place)
  local progress = prefix .. 'progress'
  local bits, at = redis.call('HGET', progress, id) or '', math.floor(place / 8)
  if #bits <= at then bits = bits .. string.rep('\0', at + 1 - #bits) end
  local byte = string.byte(bits, at + 1)
  if math.floor(byte / 2 ^ (place % 8)) % 2 == 0 then byte = byte + 2 ^ (place % 8) end
  redis.call('HSET', progress, id, string.sub(bits, 1, at) .. string.char(byte) .. string.sub(bits, at + 2))
end
