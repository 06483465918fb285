-- The message at a place of a frame, or nil.
local function pick(frame, place)
  local from = 1
  while from + 47 <= #frame do
    local to = from + 3 + struct.unpack('<I4', frame, from)
    if to > #frame then return nil end
    if place == 0 then return string.sub(frame, from, to) end
    from, place = to + 1, place - 1
  end
end
