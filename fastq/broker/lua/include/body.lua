-- The frame of a stream entry: nil if the entry is gone, "" for one that carries none (the wake entry).
local function body(stream, id)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if not entry then return nil end
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'f' then return entry[2][i + 1] end
  end
  return ''
end
