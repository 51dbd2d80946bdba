-- Reconcile: reset or raise the count, charge a debt that was not charged before, and decide. It can be repeated. The script of
-- the strategy comes before this one, as the function step.
--
-- KEYS[1]     the strategy's
-- KEYS[2]     hash: source -> the largest total of it that was charged. It lives at least as long as what it tells of
-- KEYS[3]     string: when something was last taken back; see take_back.lua
-- KEYS[4]     string: the number of the last reset; see forget.lua
-- ARGV[1,2]   op, run or peek, and now; grace: see clock.lua
-- ARGV[3]     source: who has the debt; empty: it is charged each time
-- ARGV[4,5]   charged and total: the debt is what lies between, less what was charged before
-- ARGV[6,7]   where the cost stands among the strategy's own arguments, and in how many: 1, or 2 if it is a time
-- ARGV[8,9]   when the count of the seed was known: how many ms ago, and in Unix ms; the earlier one counts. If something
--             was taken back since, the count is out of date, and the key has not lost it: what it kept is newer
-- ARGV[10]    the number of the reset that was missed, 0 for none; it is done once
-- ARGV[11]    number of the arguments of a seed, 0 for none; then these
-- then        number of the arguments of a charge, and of the decision; then those of a charge of 1; then the decision's
-- the last    how long the debt may count where it was admitted, ms: its period may end later than that of KEYS[1]
--
-- Returns what the decision returns, and the number of the last reset, or 0.

--include now
--include forget
local op, now, ms = now()

local function arguments(op, first, n)
  local list = {op .. now, ARGV[2]}
  for i = first, first + n - 1 do list[#list + 1] = ARGV[i] end
  return list
end

--include times

if ARGV[10] ~= '0' and redis.call('GET', KEYS[4]) ~= ARGV[10] then forget(KEYS[4], KEYS[3], ARGV[10], ms) end

local seed, back = ARGV[11] + 0, redis.call('GET', KEYS[3])
if seed > 0 and not (back and back + 0 >= math.min(ms - ARGV[8], ARGV[9] + 0)) then step(arguments('seed', 12, seed)) end

local own = ARGV[12 + seed] + 0
local charge = arguments('charge', 13 + seed, own)
local named = ARGV[3] ~= ''
local debt = ARGV[5] - math.max(ARGV[4] + 0, (named and redis.call('HGET', KEYS[2], ARGV[3]) or 0) + 0)
if debt > 0 then
  local at = ARGV[6] + 2
  if ARGV[7] == '2' then
    local s, ns = times(charge[at] + 0, charge[at + 1] + 0, debt)
    charge[at], charge[at + 1] = string.format('%d', s), string.format('%d', ns)
  else
    charge[at] = string.format('%d', debt)
  end
  step(charge)
  if named then redis.call('HSET', KEYS[2], ARGV[3], ARGV[5]) end
end

local reply = step(arguments(op, 13 + seed + own, own))
local life = math.max(redis.call('PTTL', KEYS[1]), ARGV[#ARGV] + 0)
redis.call('PEXPIRE', KEYS[2], string.format('%d', life + ARGV[2] + 1000))
return reply .. ' ' .. (redis.call('GET', KEYS[4]) or '0')
