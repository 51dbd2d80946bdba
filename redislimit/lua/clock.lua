-- The beginning of every script.
--
-- ARGV[1]       op: run | peek | charge | seed | refund; then now, " seconds nanoseconds" of Unix time, if it is not the
--               server's own TIME
-- ARGV[2]       grace, ms: how much longer than its period a key lives
-- ARGV[3..]     the script's own
-- the last two  of seed and refund only: an instant, Unix seconds and nanoseconds: the end of the period that was counted
--               elsewhere; the ExpiresAt of what was taken
--
-- An instant is a pair, whole seconds and the nanoseconds of that second: as one number of nanoseconds it would not
-- fit a Lua number, which holds every integer only up to MAX. Counts end at MAX for the same reason.
--
-- Every script answers with one string of whole numbers. They are spelt with %d, here and for commands: Lua's own
-- spelling keeps 14 digits only. A function costs each call its making, so those that most calls do not need come after
-- the part that most calls end in; arithmetic reads a string of digits for less than tonumber does.

local MAX = 9007199254740991
local call, format, match, args = redis.call, string.format, string.match, ARGV
local key, op, grace = KEYS[1], args[1], args[2]
local time, s, ns -- time: the server's, if it counts
if op ~= 'run' then op, s, ns = match(op, '^(%a+) ?(%-?%d*) ?(%d*)$') end
if not s or s == '' then
  time = call('TIME')
  s, ns = time[1] + 0, time[2] * 1000
else
  s, ns = s + 0, ns + 0
end
