-- Writes the state of a tracked job: state, attempt and time, for `ms` from now.
local function mark(prefix, uid, state, attempt, now, ms)
  redis.call('SET', prefix .. 'job:' .. uid, string.format('%s %d %.0f', state, attempt, now), 'PX', string.format('%.0f', ms))
end
