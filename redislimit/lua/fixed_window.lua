-- Fixed window: one counter for each window of d ms, aligned to the Unix epoch.
--
-- KEYS[1]     hash: number of the window (floor of Unix ms / d) -> cost admitted in it
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3]     d, ms
-- ARGV[4]     limit, hits
-- ARGV[5]     cost, hits (seed: the count to come up to)
--
-- Returns "allowed count window": 1 or 0, the count with this request if it is allowed, the window's number.

--include clock
local d, limit, by = args[3] + 0, args[4] + 0, args[5]
local ms = s * 1000 + (ns - ns % 1e6) / 1e6
local left = d - ms % d
local w = (ms + left) / d - 1
local field = format('%d', w)

local oldest, after = w - 1, w + 1 -- a clock that is set back over the edge finds its count again

--include window
