-- @include bump
-- Counts a lock that was its job's no more when the job ended. `suffix` begins with the task's name, %-encoded.
local function lost(counters, suffix)
  local task = string.gsub(string.match(suffix, '^[^:]*'), '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end)
  bump(counters, 'locks_lost', 1)
  bump(counters, 'locks_lost:' .. task, 1)
end
