-- The rest of the scripts that count in one window. It needs limit; by, the cost as it was sent; w and field, the number of
-- the window and its field; left, how long the window still lasts, ms; what windows.lua needs; and d, if windows have
-- one length and numbers in their order, and not that of the second at which they end.

local cost = by + 0
local n = call('HGET', key, field)
if n and op == 'run' then
  n = n + 0
  local reply = '0 %d %s'
  if n <= limit - cost then
    n = n + cost
    call('HINCRBY', key, field, by)
    reply = '1 %d %s'
  end
  if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', left + grace)) end
  return format(reply, n, field) .. clock
end

--include instants

local ttl = left + grace

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
  local taken = END_S
  if d then taken = edge(d) - 1 end
  for i = 4, d and 0 or 6 do -- the ends of a calendar's windows
    if off(args[i] + 0, 0) <= OFF then taken = args[i] + 0 end
  end
  local there = count(taken)
  if taken >= w and there > 0 then
    call('HSET', key, int(taken), int(math.max(0, there - cost)))
  end
end
heal(ttl)
return format('%d %d %s', allowed and 1 or 0, n, field) .. clock
