-- The beginning of every script.
--
-- ARGV[1]       op: run | peek | charge | seed | refund; then now, " seconds nanoseconds" of Unix time, if it is not the
--               server's own TIME
-- ARGV[2]       grace, ms: how much longer than its period a key lives
-- ARGV[3..]     the script's own
-- the last four of seed, refund and return only: seconds and nanoseconds of an instant of Unix time, and of a span
--   of seed     the end of the period that was counted elsewhere, and how long that is from now: if the two differ by
--               more than a second the server's clock was set, and the span holds, else the earlier one
--   of refund   the ExpiresAt of what was taken, and how far off that may be
--   of return   that which the strategy knows an admission by, and 0
--
-- An instant is a pair, whole seconds and the nanoseconds of that second: as one number of nanoseconds it would not
-- fit a Lua number, which holds every integer only up to MAX. Counts end at MAX for the same reason.
--
-- Every script answers with one string of whole numbers, of which the last two are the clock. They are spelt with %d, here and for commands: Lua's own
-- spelling keeps 14 digits only. A function costs each call its making, so those that most calls do not need come after
-- the part that most calls end in; arithmetic reads a string of digits for less than tonumber does.

local MAX = 9007199254740991
local call, format, match, args = redis.call, string.format, string.match, ARGV
local key, op, grace = KEYS[1], args[1], args[2]
local s, ns, clock -- now, as numbers, which a script may set; and as the end of the reply
if op ~= 'run' then op, s, ns = match(op, '^(%a+) ?(%-?%d*) ?(%d*)$') end
if not s or s == '' then
  local time = call('TIME')
  clock = ' ' .. time[1] .. ' ' .. time[2] .. '000'
  s, ns = time[1] + 0, time[2] * 1000
else
  clock = ' ' .. s .. ' ' .. ns
  s, ns = s + 0, ns + 0
end
