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
local d, limit, cost = args[3] + 0, args[4] + 0, args[5] + 0
local ms = s * 1000 + (ns - ns % 1e6) / 1e6
local w = (ms - ms % d) / d
local field = format('%d', w)

local n = call('HGET', key, field)
if n and op == 'run' then
  n = n + 0
  local reply = '0 %d %s'
  if n <= limit - cost then
    n = n + cost
    call('HINCRBY', key, field, args[5])
    reply = '1 %d %s'
  end
  if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', d - ms % d + grace)) end
  return format(reply, n, field)
end

--include instants

local ttl = d - ms % d + grace
local kept = 1 -- a clock that is set back over the edge finds its count again

--include windows

n = n and n + 0 or 0
local allowed = n <= limit - cost
if op == 'run' or op == 'peek' then
  if allowed then
    n = n + cost
    if op == 'run' then put(n) end
  end
elseif op == 'charge' then
  put(plus(n, cost))
elseif op == 'seed' then
  if before(s, ns, END_S, END_NS) and n < cost then put(cost) end
elseif op == 'refund' then
  local taken = math.floor(millis(END_S, END_NS) / d) - 1
  local there = count(taken)
  if taken >= w and there > 0 then
    call('HSET', key, int(taken), int(math.max(0, there - cost)))
  end
end
heal(ttl)
return format('%d %d %s', allowed and 1 or 0, n, field)
