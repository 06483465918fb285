-- Looks up a numbered call: its reply if it is the last one, `stale` if a later one came, neither if it is new.
local function answered(key, number)
  local last = redis.call('GET', key)
  if not last then return nil, false end
  local space = string.find(last, ' ', 1, true)
  local n = tonumber(string.sub(last, 1, space - 1))
  if n == number then return cmsgpack.unpack(string.sub(last, space + 1)), false end
  return nil, n > number
end
