-- Reset: forget a key, and leave a number by which the returns of what it counted are known. The number lives as long as
-- what was counted would have.
--
-- KEYS[1]     the strategy's
-- KEYS[2]     string: the number of the last reset
-- ARGV[1]     a number that no other reset has
-- ARGV[2]     ms: how long the number lives if the key had lost its time to live
--
-- Returns 0.

local life = redis.call('PTTL', KEYS[1])
if life == -1 then life = ARGV[2] + 0 end
if redis.call('DEL', KEYS[1]) == 1 then
  life = math.max(1, life, redis.call('PTTL', KEYS[2]))
  redis.call('PSETEX', KEYS[2], string.format('%d', life), ARGV[1])
end
return '0'
