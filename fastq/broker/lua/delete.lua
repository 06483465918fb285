#!lua flags=allow-oom
-- Deletes dead jobs; their locks and ids are free again.
-- KEYS  1 prefix of the queue
-- ARGV  1 now ms, or "" · 2.. uids, at most 200
-- Returns {OK, jobs deleted}
-- @include status
-- @include clock
-- @include head
-- @include finish
-- @include count
local prefix, given, uids = KEYS[1], ARGV[1], ARGV
local dead, jobs = prefix .. 'dead', prefix .. 'jobs'
local now, counters, deleted = clock(given), {dead_bytes = 0}, 0
for i = 2, #uids do
  local uid = uids[i]
  if redis.call('ZREM', dead, uid) == 1 then
    local message = redis.call('HGET', jobs, uid)
    redis.call('HDEL', jobs, uid, uid .. '!')
    deleted = deleted + 1
    if message then
      counters.dead_bytes = counters.dead_bytes - #message
      if #message >= 48 then finish(prefix, head(message), 'deleted', true, now, counters) end
    end
  end
end
count(prefix, counters)
return {STATUS.OK, deleted}
