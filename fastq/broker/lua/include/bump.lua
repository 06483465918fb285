-- Counts in a table of counters that `count` writes at the end of a script.
local function bump(counters, name, by)
  counters[name] = (counters[name] or 0) + by
end
