#!lua flags=allow-oom,no-writes
-- Counts what a queue holds.
-- KEYS  1 prefix of the queue
-- ARGV  1 most entries in hand to look into
-- Returns {OK, gate, jobs in hand, scheduled, dead, workers, counters}: gate "" | "cancelled" | "paused"; counters a flat list of
--         names and numbers. Of more entries than were looked into, the jobs in hand are estimated.
-- @include body
-- @include unsettled
local prefix, limit = KEYS[1], tonumber(ARGV[1])
local call = redis.call

-- Jobs in the entries that workers have got and not settled.
local function in_hand()
  local jobs, entries, looked_into = 0, 0, 0
  for _, name in ipairs({'suspects', 'front', 'stream'}) do
    local stream = prefix .. name
    local pending = redis.pcall('XPENDING', stream, 'fastq')
    if not pending.err and pending[1] > 0 then
      entries = entries + pending[1]
      local ids = limit > looked_into and call('XPENDING', stream, 'fastq', '-', '+', limit - looked_into) or {}
      looked_into = looked_into + #ids
      for i = 1, #ids do
        local id = ids[i][1]
        jobs = jobs + unsettled(body(stream, id) or '', call('HGET', prefix .. 'progress', id) or '')
      end
    end
  end
  if looked_into == 0 then return entries end
  return math.floor(jobs * entries / looked_into + 0.5)
end

return {
  STATUS.OK, call('GET', prefix .. 'gate') or '', in_hand(), call('ZCARD', prefix .. 'scheduled'), call('ZCARD', prefix .. 'dead'),
  call('ZCOUNT', prefix .. 'consumers', '(0', '+inf'), call('HGETALL', prefix .. 'stats'),
}
