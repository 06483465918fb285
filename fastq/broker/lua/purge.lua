#!lua flags=allow-oom
-- Deletes jobs that wait or are scheduled, a bounded number a call; their locks and ids are free again. What a worker has in hand
-- is left alone.
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2 most entries and most scheduled jobs to delete
-- Returns {OK, jobs deleted, 1 if there is more to delete, else 0}
-- @include status
-- @include clock
-- @include head
-- @include split
-- @include finish
-- @include unschedule
-- @include count
local prefix, given, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
local now, counters, deleted, waiting, more = clock(given), {}, 0, 0, 0

local function drop(message)
  if #message >= 48 then finish(prefix, head(message), 'deleted', false, now, counters) end
  deleted = deleted + 1
end

-- The id of the last entry that a worker has got; "0-0" while there is no group.
local function delivered(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err or not groups[1] then return '0-0' end
  for i = 1, #groups[1], 2 do
    if groups[1][i] == 'last-delivered-id' then return groups[1][i + 1] end
  end
end

for _, name in ipairs({'suspects', 'front', 'stream'}) do
  local stream = prefix .. name
  local entries = redis.call('XRANGE', stream, '(' .. delivered(stream), '+', 'COUNT', limit)
  for i = 1, #entries do
    if entries[i][2][1] == 'f' then
      for _, message in ipairs(split(entries[i][2][2], '')) do
        drop(message)
        waiting = waiting + 1
      end
    end
    redis.call('XDEL', stream, entries[i][1])
  end
  if #entries == limit then more = 1 end
end
local uids = redis.call('ZRANGE', prefix .. 'scheduled', 0, limit - 1)
for i = 1, #uids do
  local message = unschedule(prefix, uids[i])
  if message then drop(message) end
end
if #uids == limit then more = 1 end
redis.call('DEL', prefix .. 'wake')
counters.waiting, counters.purged = -waiting, deleted
count(prefix, counters)
return {STATUS.OK, deleted, more}
