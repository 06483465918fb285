#!lua flags=allow-oom
-- Enters a worker into a queue, before its first read: makes the streams and their group, and adds it to the consumers.
-- If the group had been lost, entries that were settled in part are added anew without their settled jobs.
-- KEYS  1 prefix of the queue
-- ARGV  1 worker id · 2 now ms, or ""
-- Returns {OK, jobs that were added anew because the group had been lost}
-- @include clock
-- @include above
-- @include body
-- @include split
local prefix, worker, given = KEYS[1], ARGV[1], ARGV[2]
local now, made, again, next_id = clock(given), {}, 0, nil
for _, name in ipairs({'stream', 'front', 'suspects'}) do
  local reply = redis.pcall('XGROUP', 'CREATE', prefix .. name, 'fastq', '0', 'MKSTREAM')
  if not reply.err then
    made[#made + 1] = name
  elseif not string.find(reply.err, 'BUSYGROUP', 1, true) then
    return reply
  end
end
if made[1] then
  local progress = redis.call('HGETALL', prefix .. 'progress')
  for i = 1, #progress, 2 do
    for _, name in ipairs(made) do
      local frame = body(prefix .. name, progress[i])
      if frame then
        for _, message in ipairs(split(frame, progress[i + 1])) do
          next_id = next_id or above(prefix, now)
          redis.call('XADD', prefix .. 'front', next_id(), 'f', message)
          again = again + 1
        end
        redis.call('XDEL', prefix .. name, progress[i])
        redis.call('HDEL', prefix .. 'progress', progress[i])
      end
    end
  end
  if made[3] then redis.call('DEL', prefix .. 'progress') end
end
redis.call('ZADD', prefix .. 'consumers', string.format('%.0f', now), worker)
return {STATUS.OK, again}
