-- @include bump
-- @include frames
-- @include came_due
-- Moves up to `limit` jobs that are due from the schedule to the stream. Returns how many, how many had lost their message, and
-- the ms until the next one is due (-1: none).
local function promote(prefix, limit, now, counters)
  local scheduled, jobs = prefix .. 'scheduled', prefix .. 'jobs'
  local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)
  local messages, lost, retrying = {}, 0, 0
  if #due > 0 then
    local bodies = redis.call('HMGET', jobs, unpack(due))
    for i = 1, #due do
      local message = bodies[i]
      if message then
        messages[#messages + 1] = message
        if #message > 10 and struct.unpack('<I2', message, 9) > 1 then retrying = retrying + 1 end
        came_due(prefix, message)
      else
        lost = lost + 1
      end
    end
    frames(prefix .. 'stream', messages)
    redis.call('ZREM', scheduled, unpack(due))
    redis.call('HDEL', jobs, unpack(due))
    bump(counters, 'waiting', #messages)
    bump(counters, 'lost', lost)
    bump(counters, 'retrying', -retrying)
  end
  local first = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  return #messages, lost, first[2] and math.max(0, tonumber(first[2]) - now) or -1
end
