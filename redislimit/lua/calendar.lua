-- Calendar: one counter for each window of a calendar. The client has the rules of time zones, and sends the windows around
-- its own time: the one before, its own, and the next one.
--
-- KEYS[1]     hash: when the window ends, Unix seconds -> cost admitted in it
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3..6]  when these windows begin, and when the last one ends, Unix seconds
-- ARGV[7]     limit, hits
-- ARGV[8]     cost, hits (seed: the count to come up to)
--
-- Returns "allowed count end": 1 or 0, the count with this request if it is allowed, when the window ends.

--include clock
local limit, by, i = args[7] + 0, args[8], 4
while i < 6 and s >= args[i] + 0 do i = i + 1 end
local oldest, field, after = args[i - 1] + 0, args[i], tonumber(i < 6 and args[i + 1])
local w, d = field + 0
if s < oldest or s >= w then error('weir: clocks differ: the server\'s shows ' .. format('%d', s)) end
local left = (w - s) * 1000 - (ns - ns % 1e6) / 1e6

--include window
