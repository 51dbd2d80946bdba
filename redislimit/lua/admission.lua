-- Admission: a run that can be returned, and the return of it. The script of the strategy comes before this one, as the
-- function step.
--
-- KEYS[1]     the strategy's
-- KEYS[2]     string: the number of the last reset; see reset.lua
-- ARGV        of a run the strategy's; of a return too, and then the number that the run returned
--
-- Returns of a run what the strategy returns, now in seconds and nanoseconds, and the number of the last reset, or 0. Of a
-- return 0: it takes nothing back if there was a reset since.

local reset = redis.call('GET', KEYS[2])
local now = string.match(ARGV[1], '^run(.*)$')
if now then
  if now == '' then
    local time = redis.call('TIME')
    now = string.format(' %d %d', time[1] + 0, time[2] * 1000)
    ARGV[1] = 'run' .. now
  end
  return step(ARGV) .. now .. ' ' .. (reset or '0')
end
local before = table.remove(ARGV)
if not reset or reset == before then step(ARGV) end
return '0'
