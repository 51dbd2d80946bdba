-- Take back: a refund, or the return of an admission. It leaves the instant, by which Reconcile knows a count of before
-- from one that was lost. The script of the strategy comes before this one, as the function step.
--
-- KEYS[1]     the strategy's
-- KEYS[2]     string: the number of the last reset; see reset.lua
-- KEYS[3]     string: when something was last taken back, Unix ms. It lives as long as what was counted would have
-- ARGV        the strategy's, and then the number that the run returned, or '' of a refund, which does not know it
--
-- Returns 0. It takes nothing back if there was a reset since the run.

--include now
local run = table.remove(ARGV)
local life, reset = redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2])
if life == -2 or reset and run ~= '' and reset ~= run then return '0' end
local op, now, ms = now()
ARGV[1] = op .. now
step(ARGV)
life = math.max(1, life, redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[3]))
redis.call('PSETEX', KEYS[3], string.format('%d', life), string.format('%d', ms))
return '0'
