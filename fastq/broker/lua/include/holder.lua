-- The uid of the job that uses an explicit id, or "" if nobody does.
local function holder(prefix, id)
  return redis.call('GETRANGE', prefix .. 'id:' .. id, 0, 15)
end
