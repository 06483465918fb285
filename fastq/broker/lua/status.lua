#!lua flags=allow-oom,no-writes
-- What is known of a job: its state, and where it can be had the attempt and a time.
-- KEYS  1 prefix of the queue
-- ARGV  1 uid, or "" · 2 explicit id, or "" · 3 lock key, or ""
-- Returns {OK, uid, state, message or ""}: state is "" when there is no record of the job; the message of a scheduled, retrying
--         or dead one
-- @include holder
local prefix, uid, id, lock = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
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
if record then return {STATUS.OK, uid, string.match(record, '^%a+'), ''} end
-- A lock tells of its job for as long as it is the job's own; a start is noted in it by the kinds that ask before they start.
local value = lock ~= '' and redis.call('GET', prefix .. 'unique:' .. lock) or ''
local state = string.sub(value, 17, 17)
if string.sub(value, 1, 16) ~= uid or state == 'E' then return {STATUS.OK, uid, '', ''} end
return {STATUS.OK, uid, state == 'R' and 'running' or 'waiting', ''}
