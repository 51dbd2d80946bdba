-- In flight: leases, which end one d after they were taken or renewed, unless they are given back before.
--
-- KEYS[1]     sorted set, every score 0, so in the order of its members: the sum of the costs, as + and digits; then each
--             lease as END ID COST. END is when it ends, a stamp: seconds + 1e10 and nanoseconds, in 20 digits
-- ARGV[1,2]   op and now, grace: see clock.lua; also the ops renew and release
-- ARGV[3,4]   d: seconds and nanoseconds
-- ARGV[5]     limit
-- ARGV[6]     cost (seed: the count to come up to)
-- ARGV[7]     ID of the lease, which no other has. One that begins with h is held: a refund leaves it
-- renew and release then have two more: when the lease was to end, as far as is known
--
-- Returns "allowed used seconds nanoseconds": 1 or 0 (renew: is it held), the cost in flight with this request if it is
-- allowed, and an instant: if it is allowed the end of its lease, else of the one that must end for it to pass.

--include clock
--include instants
local d_s, d_ns, limit, cost, id = args[3] + 0, args[4] + 0, args[5] + 0, args[6] + 0, args[7]

local function stamp(s1, ns1)
  return format('%011d%09d', s1 + 1e10, ns1)
end

-- ended returns when a lease ends.
local function ended(lease)
  return string.sub(lease, 1, 11) - 1e10, string.sub(lease, 12, 20) + 0
end

local function costOf(lease)
  return match(lease, '(%d+)$') + 0
end

-- at returns the leases that end at END, or next to it: a space comes before all that a stamp is made of, and after it
-- comes '!'.
local function at()
  local off_s, off_ns = math.floor(OFF / 1e9), OFF % 1e9
  local low = stamp(sub(END_S, END_NS, off_s, off_ns))
  local all = call('ZRANGEBYLEX', key, '[' .. low, '(' .. stamp(add(END_S, END_NS, off_s, off_ns)) .. '!')
  local same, least
  for _, lease in ipairs(all) do
    local by = off(ended(lease))
    if string.sub(lease, 22, 22) ~= 'h' then
      if not least or by < least then same, least = {}, by end
      if by == least then same[#same + 1] = lease end
    end
  end
  return same or {}
end

-- Most calls find that no lease is over.
local first = call('ZRANGE', key, '0', '1')
local sum = first[1]
local used = sum and string.sub(sum, 2) + 0 or 0
local over, now = {}, stamp(s, ns)
if first[2] and string.sub(first[2], 1, 20) <= now then
  over = call('ZRANGEBYLEX', key, '[0', '(' .. now .. '!')
  for _, lease in ipairs(over) do
    used = used - costOf(lease)
    if op ~= 'peek' then call('ZREM', key, lease) end
  end
  if op ~= 'peek' then over = {} end
end

-- keep stores the sum.
local function keep()
  local text = '+' .. int(used)
  if sum == text then return end
  if sum then call('ZREM', key, sum) end
  if used > 0 then call('ZADD', key, '0', text) end
  sum = text
end

local end_s, end_ns = add(s, ns, d_s, d_ns)
local life = millisUp(d_s, d_ns) + grace

local function put(c)
  call('ZADD', key, '0', stamp(end_s, end_ns) .. ' ' .. id .. ' ' .. int(c))
  used = used + c
end

-- take removes the lease of this ID, and reports whether there was one. If the answer to its last renewal was lost, it ends
-- at another instant than the client knows.
local function take()
  local lease = stamp(args[8] + 0, args[9] + 0) .. ' ' .. id .. ' ' .. int(cost)
  if call('ZREM', key, lease) == 0 then
    local infix = ' ' .. id .. ' '
    lease = nil
    for _, other in ipairs(call('ZRANGE', key, '1', '-1')) do
      if string.find(other, infix, 1, true) then lease = other end
    end
    if not lease then return false end
    call('ZREM', key, lease)
  end
  used = used - costOf(lease)
  return true
end

-- refund takes c from the leases that end at END, but those that are held.
local function refund(c)
  for _, lease in ipairs(at()) do
    if c > 0 then
      local had = costOf(lease)
      local back = math.min(had, c)
      call('ZREM', key, lease)
      if had > back then call('ZADD', key, '0', string.sub(lease, 1, -#int(had) - 1) .. int(had - back)) end
      used, c = used - back, c - back
    end
  end
end

-- leaver returns when so many leases have ended that at least need is free.
local function leaver(need)
  local rank = 1 + #over
  while true do
    local leases = call('ZRANGE', key, int(rank), int(rank + 15))
    for _, lease in ipairs(leases) do
      need = need - costOf(lease)
      if need <= 0 then return ended(lease) end
    end
    if #leases == 0 then return end_s, end_ns end
    rank = rank + #leases
  end
end

local allowed = op == 'renew' and take() or used <= limit - cost
local hit_s, hit_ns = end_s, end_ns
if allowed and (op == 'run' or op == 'renew') then
  put(cost)
elseif op == 'peek' and allowed then
  used = used + cost
elseif op == 'run' or op == 'peek' then
  hit_s, hit_ns = leaver(used - (limit - cost))
elseif op == 'release' then
  take()
elseif op == 'charge' then
  if used < MAX then put(math.min(cost, MAX - used)) end
elseif op == 'seed' then
  if before(s, ns, END_S, END_NS) and used < cost then put(cost - used) end
elseif op == 'refund' and before(s, ns, END_S, END_NS) then
  refund(cost)
end
if op ~= 'peek' then
  keep()
  if used > 0 then call('PEXPIRE', key, int(math.max(life, call('PTTL', key)))) end
end
return format('%d %d %d %d', allowed and 1 or 0, used, hit_s, hit_ns) .. clock
