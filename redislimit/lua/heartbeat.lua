-- Heartbeat: who is there.
--
-- KEYS[1]     hash: instance -> until when it counts, Unix ms
-- ARGV[1]     beat or leave
-- ARGV[2]     the instance
-- ARGV[3]     ms: how long a beat counts
--
-- Returns 1 and the number of instances.

local time, n = redis.call('TIME'), 0
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] == 'beat' then
  redis.call('HSET', KEYS[1], ARGV[2], string.format('%d', now + ARGV[3]))
  redis.call('PEXPIRE', KEYS[1], string.format('%d', 2 * ARGV[3]))
else
  redis.call('HDEL', KEYS[1], ARGV[2])
end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if all[i + 1] + 0 > now then n = n + 1 else redis.call('HDEL', KEYS[1], all[i]) end
end
return string.format('1 %d', n)
