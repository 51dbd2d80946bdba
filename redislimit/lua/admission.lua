-- Admission: a run that can be returned, see take_back.lua. The script of the strategy comes before this one, as the
-- function step.
--
-- KEYS[1]     the strategy's
-- KEYS[2]     string: the number of the last reset; see reset.lua
-- ARGV        the strategy's
--
-- Returns what the strategy returns, and the number of the last reset, or 0.

--include now
local op, now = now()
ARGV[1] = op .. now
return step(ARGV) .. ' ' .. (redis.call('GET', KEYS[2]) or '0')
