-- What a script can answer in its first value; scripts.Status mirrors it.
local STATUS = {OK = 0, FULL = 1, FENCED = 2, STALE = 3, MISSING = 4, CONFLICT = 5}
