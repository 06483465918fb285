-- @include head
-- @include enter
-- @include rerun
-- @include runs
-- @include unpark
-- Looks after a few of the jobs and calls whose turn nobody may come to give: parked ones whose lock is gone or their own while no
-- other job runs, and calls left to a job that has lost its lock to another, or was itself lost a day ago.
local function rescue(prefix, now, counters)
  local call = redis.call
  for _, suffix in ipairs(call('SRANDMEMBER', prefix .. 'parking', 20)) do
    local first, owner = call('LINDEX', prefix .. 'parked:' .. suffix, 0), call('GETRANGE', prefix .. 'unique:' .. suffix, 0, 15)
    if not first then
      call('SREM', prefix .. 'parking', suffix)
    elseif (owner == '' or owner == string.sub(first, 11, 26)) and not runs(prefix, suffix, '') then
      unpark(prefix, suffix, now, counters)
    end
  end
  local pending = prefix .. 'pending'
  local some = call('HRANDFIELD', pending, 20, 'WITHVALUES')
  for i = 1, #some, 2 do
    local uid, message = string.sub(some[i], 1, 16), some[i + 1]
    local job = head(message)
    local value = call('GET', prefix .. 'unique:' .. job.lock) or ''
    local owner = string.sub(value, 1, 16)
    local nobody = owner == '' or string.sub(value, 17) == 'E' -- one that has ended hands nothing on
    if owner ~= uid and not nobody then
      call('HDEL', pending, some[i])
      rerun(prefix, owner, message)
    elseif nobody and job.enqueued < now - 86400000 then
      call('HDEL', pending, some[i])
      enter(prefix, 'stream', message, '*', now, counters)
    end
  end
end
