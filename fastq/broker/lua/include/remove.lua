-- Deletes a consumer of whom nothing is pending any more.
local function remove(prefix, worker)
  for _, name in ipairs({'stream', 'front', 'suspects'}) do
    redis.pcall('XGROUP', 'DELCONSUMER', prefix .. name, 'fastq', worker)
  end
  redis.call('ZREM', prefix .. 'consumers', worker)
  redis.call('DEL', prefix .. 'held:' .. worker, prefix .. 'calls:' .. worker, prefix .. 'starts:' .. worker)
end
