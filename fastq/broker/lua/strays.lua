#!lua flags=allow-oom
-- Finds notes of progress in stream entries that are gone, a part of them a call, and deletes them if that is asked for.
-- KEYS  1 prefix of the queue
-- ARGV  1 "look" | "delete" · 2 cursor, "0" at first
-- Returns {OK, cursor of the next part, "0" after the last, how many were found}
local prefix, act, cursor = KEYS[1], ARGV[1], ARGV[2]
local call, progress, found = redis.call, prefix .. 'progress', 0
local page = call('HSCAN', progress, cursor, 'COUNT', 100)
for i = 1, #page[2], 2 do
  local id, there = page[2][i], false
  for _, name in ipairs({'stream', 'front', 'suspects'}) do
    there = there or #call('XRANGE', prefix .. name, id, id) > 0
  end
  if not there then
    found = found + 1
    if act == 'delete' then call('HDEL', progress, id) end
  end
end
return {STATUS.OK, page[1], found}
