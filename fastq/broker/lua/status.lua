#!lua flags=allow-oom,no-writes
-- What is known of a job: its state, and where it can be had the attempt and a time.
-- KEYS  1 prefix of the queue
-- ARGV  1 uid, or "" · 2 explicit id, or ""
-- Returns {OK, uid, state, message or ""}: state is "" when there is no record of the job; the message of a scheduled, retrying
--         or dead one
-- @include status
-- @include holder
local prefix, uid, id = KEYS[1], ARGV[1], ARGV[2]
if uid == '' then uid = holder(prefix, id) end
if uid == '' then return {STATUS.OK, '', '', ''} end
local jobs = prefix .. 'jobs'
if redis.call('ZSCORE', prefix .. 'scheduled', uid) then
  local message = redis.call('HGET', jobs, uid) or ''
  local retrying = #message >= 48 and struct.unpack('<I2', message, 9) > 1
  return {STATUS.OK, uid, retrying and 'retrying' or 'scheduled', message}
end
if redis.call('ZSCORE', prefix .. 'dead', uid) then return {STATUS.OK, uid, 'dead', redis.call('HGET', jobs, uid) or ''} end
local record = redis.call('GET', prefix .. 'job:' .. uid)
return {STATUS.OK, uid, record and string.match(record, '^%a+') or '', ''}
