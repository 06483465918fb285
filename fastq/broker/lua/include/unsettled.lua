-- How many messages of a frame `split` would find, without making a string of each.
local function unsettled(frame, settled)
  local from, place, open, none = 1, 0, 0, settled == ''
  while from <= #frame do
    local to = 0
    if from + 47 <= #frame and place < 64 then to = from + 3 + struct.unpack('<I4', frame, from) end
    if to > #frame or to < from + 47 then to = #frame end
    local byte = none and 0 or string.byte(settled, math.floor(place / 8) + 1) or 0
    if byte == 0 or math.floor(byte / 2 ^ (place % 8)) % 2 == 0 then open = open + 1 end
    from, place = to + 1, place + 1
  end
  return open
end
