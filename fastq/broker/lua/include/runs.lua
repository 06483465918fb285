-- @include member
-- Whether another `renew` job than `uid` runs under a key, on a worker that lives. It is asked for beside the lock, which can be
-- evicted or deleted under a running job.
local function runs(prefix, suffix, uid)
  local value = redis.call('HGET', prefix .. 'running', suffix)
  return value and string.sub(value, 1, 16) ~= uid and member(prefix, string.sub(value, 17))
end
