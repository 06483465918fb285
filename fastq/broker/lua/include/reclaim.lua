-- @include head
-- @include bump
-- @include body
-- @include split
-- @include above
-- @include finish
-- @include bury
-- @include unstart
-- @include restart
-- Takes up to `limit` entries from a worker that is gone. Jobs that it had not settled come back as frames of one, with `crash`
-- (0 or 1) added to their crashes: to `front` up to the first, to the suspects after that, to the dead beyond `max_crashes`.
-- Returns jobs brought back, entries lost (their bodies are gone), and whether anything may be left.
local function reclaim(prefix, worker, crash, limit, max_crashes, now, counters)
  local back, lost, next_id, handed = 0, 0, nil, prefix .. 'handed'
  local any_handed = redis.call('EXISTS', handed) == 1
  for _, name in ipairs({'suspects', 'front', 'stream'}) do
    local stream = prefix .. name
    local pending = redis.pcall('XPENDING', stream, 'fastq', '-', '+', limit, worker)
    if not pending.err then
      for i = 1, #pending do
        local id = pending[i][1]
        local frame = body(stream, id)
        if not frame then
          lost = lost + 1
        else
          for _, message in ipairs(split(frame, redis.call('HGET', prefix .. 'progress', id) or '')) do
            if #message < 48 then
              next_id = next_id or above(prefix, now)
              redis.call('XADD', prefix .. 'front', next_id(), 'f', message)
            else
              -- Arguments that a later call left, and that it had started with, are its own now.
              message = any_handed and redis.call('HGET', handed, string.sub(message, 11, 26)) or message
              local crashes = string.byte(message, 7) + crash
              message = string.sub(message, 1, 6) .. string.char(math.min(crashes, 255)) .. string.sub(message, 8)
              if crashes > max_crashes then
                local job = head(message)
                bury(prefix, job.uid, message, 'worker lost: ' .. crashes .. ' workers died with this job in hand', now, counters)
                finish(prefix, job, 'dead', true, now, counters)
                next_id = nil -- a parked job may have come in
              else
                if struct.unpack('<I2', message, 37) > 0 then -- it has a lock, in which its start may be noted
                  unstart(prefix, worker, head(message), 'W', now, now, counters)
                  next_id = nil
                end
                restart(prefix, message, now)
                if any_handed then redis.call('HDEL', handed, string.sub(message, 11, 26)) end
                next_id = next_id or above(prefix, now)
                redis.call('XADD', prefix .. (crashes > 1 and 'suspects' or 'front'), next_id(), 'f', message)
                back = back + 1
              end
            end
          end
        end
        redis.call('XACK', stream, 'fastq', id)
        redis.call('XDEL', stream, id)
        redis.call('HDEL', prefix .. 'progress', id)
        limit = limit - 1
      end
      if limit <= 0 then break end
    end
  end
  bump(counters, 'waiting', back)
  bump(counters, 'reclaimed', back)
  bump(counters, 'lost', lost)
  return back, lost, limit <= 0
end
