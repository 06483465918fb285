-- Whether a worker may speak for its jobs: it has joined and is not fenced.
local function member(prefix, worker)
  local beat = redis.call('ZSCORE', prefix .. 'consumers', worker)
  return beat and tonumber(beat) > 0
end
