-- Reset: forget a key.
--
-- KEYS[1]     the strategy's
-- KEYS[2]     string: the number of the last reset
-- KEYS[3]     string: when something was last taken back, Unix ms
-- ARGV[1]     reset, and now: see clock.lua
-- ARGV[2]     a number that no other reset has
--
-- Returns 1 if there was a key, and otherwise 0.

--include now
--include forget
local _, _, ms = now()
return tostring(forget(KEYS[2], KEYS[3], ARGV[2], ms))
