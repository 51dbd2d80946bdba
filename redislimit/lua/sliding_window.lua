-- Sliding window: the current window's count, and the one before weighted by how much of it the last d ms still cover.
--
-- KEYS[1]     hash: number of the window (floor of Unix ms / d) -> cost admitted in it
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3]     d, ms
-- ARGV[4]     limit, hits
-- ARGV[5]     cost, hits (seed: the count to come up to)
--
-- Returns "allowed current previous now": 1 or 0, the current window's count with this request if it is allowed, the
-- previous window's, and now in Unix ms. The instants follow from these; the client works them out. A clock that is set
-- back over the edge of a window stays at the start of the latest one with a count.

--include clock
local d, limit, cost = args[3] + 0, args[4] + 0, args[5] + 0
local ms = s * 1000 + (ns - ns % 1e6) / 1e6
local left = d - ms % d
local w = (ms + left) / d - 1
local field = format('%d', w)

local read = ms
local there = call('HMGET', key, field, format('%d', w - 1), format('%d', w + 1))
if there[3] or not there[1] then
  for _, f in ipairs(call('HKEYS', key)) do
    if f + 0 > w then w, ms, left, field = f + 0, f * d, d, f end
  end
  if ms > read then there = call('HMGET', key, field, format('%d', w - 1)) end
end
local n, previous = (there[1] or 0) + 0, (there[2] or 0) + 0

-- weight is ceil(previous * left / d).
local weight = 0
if previous > 0 then
  local product = previous * left
  local rest = product % d
  weight = (product - rest) / d
  if product > MAX then
    -- In digits of 17 bits: d is below 2^35, so no step reaches 2^53.
    weight, rest = 0, 0
    for i = 3, 0, -1 do
      local x = rest * 131072 + math.floor(previous / 2 ^ (17 * i)) % 131072 * left
      weight = weight * 131072 + math.floor(x / d)
      rest = x % d
    end
  end
  if rest > 0 then weight = weight + 1 end
end

if there[1] and op == 'run' then
  local reply = '0 %d %d %d'
  if n <= limit - cost - weight then
    n = n + cost
    call('HINCRBY', key, field, args[5])
    reply = '1 %d %d %d'
  end
  if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', left + d + ms - read + grace)) end
  return format(reply, n, previous, ms) .. clock
end

--include instants

local ttl = left + d + ms - read + grace
local oldest, after = w - 1, w + 1

--include windows

local allowed = n <= limit - cost - weight
if op == 'run' or op == 'peek' then
  if allowed then
    n = n + cost
    if op == 'run' then put(n) end
  end
elseif op == 'charge' then
  put(plus(n, cost))
elseif op == 'seed' then
  if before(s, ns, END_S, END_NS) and n < cost - weight then put(cost - weight) end
elseif op == 'refund' then
  local taken = edge(d) - 2
  local in_it = count(taken)
  if taken >= w - 1 and in_it > 0 then
    call('HSET', key, int(taken), int(math.max(0, in_it - cost)))
  end
end
heal(ttl)
return format('%d %d %d %d', allowed and 1 or 0, n, previous, ms) .. clock
