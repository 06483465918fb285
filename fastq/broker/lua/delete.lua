#!lua flags=allow-oom
-- Deletes dead jobs; their locks and ids are free again.
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2.. uids, at most 200
-- Returns {OK, jobs deleted, uids that were looked at}: fewer than were given when the first jobs were large; the others are for
--         the next call
-- @include clock
-- @include head
-- @include finish
-- @include count
local prefix, given, uids = KEYS[1], ARGV[1], ARGV
local dead, jobs, most_bytes = prefix .. 'dead', prefix .. 'jobs', 1048576
local now, counters, deleted, looked_at, size = clock(given), {dead_bytes = 0}, 0, 0, 0
for i = 2, #uids do
  local uid = uids[i]
  looked_at = i - 1
  if redis.call('ZREM', dead, uid) == 1 then
    local message = redis.call('HGET', jobs, uid)
    redis.call('HDEL', jobs, uid, uid .. '!')
    deleted = deleted + 1
    if message then
      counters.dead_bytes = counters.dead_bytes - #message
      if #message >= 48 then finish(prefix, head(message), 'deleted', true, now, counters) end
      size = size + #message
      if size > most_bytes then break end
    end
  end
end
count(prefix, counters)
return {STATUS.OK, deleted, looked_at}
