-- The messages of a frame that are not settled yet, by the bitmap of settled places (`progress`), "" if none is. What cannot be
-- split has the place behind the last message, and stays whole: the worker that reads it buries it.
local function split(frame, settled)
  local open, from, place = {}, 1, 0
  while from <= #frame do
    local to = 0
    if from + 47 <= #frame and place < 64 then to = from + 3 + struct.unpack('<I4', frame, from) end
    if to > #frame or to < from + 47 then to = #frame end
    local byte = string.byte(settled, math.floor(place / 8) + 1) or 0
    if math.floor(byte / 2 ^ (place % 8)) % 2 == 0 then open[#open + 1] = string.sub(frame, from, to) end
    from, place = to + 1, place + 1
  end
  return open
end
