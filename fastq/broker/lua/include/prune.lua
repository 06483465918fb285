-- @include head
-- @include bump
-- @include finish
-- Deletes the oldest dead jobs beyond the bounds of age, number and bytes, at most 100 a call.
local function prune(prefix, most_jobs, most_bytes, ms, now, counters)
  local dead, jobs = prefix .. 'dead', prefix .. 'jobs'
  local total, bytes = redis.call('ZCARD', dead), tonumber(redis.call('HGET', prefix .. 'stats', 'dead_bytes') or 0)
  for _ = 1, math.min(100, total) do
    local oldest = redis.call('ZRANGE', dead, 0, 0, 'WITHSCORES')
    if total <= most_jobs and bytes <= most_bytes and tonumber(oldest[2]) > now - ms then return end
    local uid = oldest[1]
    local message = redis.call('HGET', jobs, uid)
    redis.call('ZREM', dead, uid)
    redis.call('HDEL', jobs, uid, uid .. '!')
    total = total - 1
    if message then
      bytes = bytes - #message
      bump(counters, 'dead_bytes', -#message)
      if #message >= 48 then finish(prefix, head(message), 'deleted', true, now, counters) end
    end
    bump(counters, 'pruned', 1)
  end
end
