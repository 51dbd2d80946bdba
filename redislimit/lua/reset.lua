-- Reset: forget a key, and leave a number by which the returns of what it counted are known, and the instant, as
-- take_back.lua does. Both live as long as what was counted would have.
--
-- KEYS[1]     the strategy's
-- KEYS[2]     string: the number of the last reset
-- KEYS[3]     string: when something was last taken back, Unix ms
-- ARGV[1]     reset, and now: see clock.lua
-- ARGV[2]     a number that no other reset has
-- ARGV[3]     ms: how long the two live if the key had lost its time to live
--
-- Returns 0.

--include now
local _, _, ms = now()
local life = redis.call('PTTL', KEYS[1])
if life == -1 then life = ARGV[3] + 0 end
if redis.call('DEL', KEYS[1]) == 1 then
  life = string.format('%d', math.max(1, life, redis.call('PTTL', KEYS[2]), redis.call('PTTL', KEYS[3])))
  redis.call('PSETEX', KEYS[2], life, ARGV[2])
  redis.call('PSETEX', KEYS[3], life, string.format('%d', ms))
end
return '0'
