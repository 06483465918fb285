-- The id of the last entry of a stream that a worker has got; "0-0" while there is no group.
local function delivered(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err or not groups[1] then return '0-0' end
  for i = 1, #groups[1], 2 do
    if groups[1][i] == 'last-delivered-id' then return groups[1][i + 1] end
  end
end
