-- @include bump
-- @include reclaim
-- @include remove
-- Fences the consumers that have given no sign for `lease` ms, takes back what they hold, and deletes the empty ones. Who is a
-- consumer is read from the group itself. Returns jobs brought back, entries lost, and whether more is left to do.
local function judge(prefix, me, lease, limit, max_crashes, now, counters)
  local consumers, back, lost, more, seen = prefix .. 'consumers', 0, 0, false, {}
  for _, name in ipairs({'stream', 'front', 'suspects'}) do
    local group = redis.pcall('XINFO', 'CONSUMERS', prefix .. name, 'fastq')
    if not group.err then
      for i = 1, #group do seen[group[i][2]] = true end
    end
  end
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', consumers, '-inf', string.format('%.0f', now - lease))) do seen[worker] = true end
  for worker in pairs(seen) do
    local beat = tonumber(redis.call('ZSCORE', consumers, worker) or 0)
    if worker ~= me and beat < now - lease then
      if beat >= 0 then
        redis.call('ZADD', consumers, -1, worker)
        bump(counters, 'fenced', 1)
      end
      local b, l, m = reclaim(prefix, worker, 1, limit, max_crashes, now, counters)
      back, lost = back + b, lost + l
      if m then return back, lost, true end
      remove(prefix, worker)
    end
  end
  return back, lost, false
end
