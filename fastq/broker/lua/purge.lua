#!lua flags=allow-oom
-- Deletes jobs that wait or are scheduled, a bounded number a call; their locks and ids are free again. What a worker has in hand,
-- and what is parked behind it, is left alone.
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2 jobs after which the call ends
-- Returns {OK, jobs deleted, 1 if there is more to delete, else 0}
-- @include clock
-- @include head
-- @include split
-- @include delivered
-- @include finish
-- @include unschedule
-- @include count
local prefix, given, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
local call, page = redis.call, 16
local now, counters, deleted, waiting = clock(given), {}, 0, 0

local function drop(message)
  if #message >= 48 then finish(prefix, head(message), 'deleted', false, now, counters) end
  deleted = deleted + 1
end

local function empty(stream, last)
  local after = '(' .. delivered(stream)
  while deleted < limit do
    local entries = call('XRANGE', stream, after, last, 'COUNT', page)
    for i = 1, #entries do
      if entries[i][2][1] == 'f' then
        for _, message in ipairs(split(entries[i][2][2], '')) do
          drop(message)
          waiting = waiting + 1
        end
      end
      call('XDEL', stream, entries[i][1])
    end
    if #entries < page then return end
  end
end

-- All that is to go is found before anything goes: what deleted jobs hand on, a call that waited to rerun or a parked job, stays.
local streams, last = {prefix .. 'suspects', prefix .. 'front', prefix .. 'stream'}, {}
for i = 1, #streams do
  local entry = call('XREVRANGE', streams[i], '+', '-', 'COUNT', 1)[1]
  last[i] = entry and entry[1]
end
local uids = call('ZRANGE', prefix .. 'scheduled', 0, limit - 1)
for i = 1, #streams do
  if last[i] then empty(streams[i], last[i]) end
end
for i = 1, math.min(#uids, limit - deleted) do
  local message = unschedule(prefix, uids[i], counters)
  if message then drop(message) end
end
call('DEL', prefix .. 'wake')
counters.waiting, counters.purged = -waiting, deleted
count(prefix, counters)
return {STATUS.OK, deleted, deleted >= limit and 1 or 0}
