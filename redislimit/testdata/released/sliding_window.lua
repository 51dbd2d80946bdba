

local MAX = 9007199254740991
local call, format, match, args = redis.call, string.format, string.match, ARGV
local key, op, grace = KEYS[1], args[1], args[2]
local time, s, ns -- time: the server's, if it counts
if op ~= 'run' then op, s, ns = match(op, '^(%a+) ?(%-?%d*) ?(%d*)$') end
if not s or s == '' then
  time = call('TIME')
  s, ns = time[1] + 0, time[2] * 1000
else
  s, ns = s + 0, ns + 0
end
local d, limit, cost = args[3] + 0, args[4] + 0, args[5] + 0
local ms = s * 1000 + (ns - ns % 1e6) / 1e6
local left = d - ms % d
local w = (ms + left) / d - 1
local field = format('%d', w)

local there = call('HMGET', key, field, format('%d', w - 1))
local n, previous = (there[1] or 0) + 0, (there[2] or 0) + 0

local weight = 0
if previous > 0 then
  local product = previous * left
  local rest = product % d
  weight = (product - rest) / d
  if product > MAX then
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
  if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', left + d + grace)) end
  return format(reply, n, previous, ms)
end


local END_S, END_NS
if op == 'seed' or op == 'refund' then
  END_S, END_NS = args[#args - 1] + 0, args[#args] + 0
end

local function int(x)
  return format('%d', x)
end

local function before(s1, ns1, s2, ns2)
  return s1 < s2 or (s1 == s2 and ns1 < ns2)
end

local function add(s1, ns1, s2, ns2)
  local sum = ns1 + ns2
  if sum >= 1e9 then return s1 + s2 + 1, sum - 1e9 end
  return s1 + s2, sum
end

local function sub(s1, ns1, s2, ns2)
  local rest = ns1 - ns2
  if rest < 0 then return s1 - s2 - 1, rest + 1e9 end
  return s1 - s2, rest
end

local function millis(s1, ns1)
  return s1 * 1000 + math.floor(ns1 / 1e6)
end

local function millisUp(s1, ns1)
  return s1 * 1000 + math.ceil(ns1 / 1e6)
end

local function plus(a, b)
  if a > MAX - b then return MAX end
  return a + b
end

local alive = false
local function heal(ms)
  if not alive and op ~= 'peek' and call('PTTL', key) == -1 then call('PEXPIRE', key, int(ms)) end
end

local ttl = left + d + grace

local function count(window)
  return tonumber(call('HGET', key, int(window)) or 0)
end

local function put(to)
  if call('HSET', key, field, int(to)) == 1 then
    for _, f in ipairs(call('HKEYS', key)) do
      if tonumber(f) < w - 2 then call('HDEL', key, f) end
    end
    call('PEXPIRE', key, int(ttl))
    alive = true
  end
end

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
  local taken = math.floor(millis(END_S, END_NS) / d) - 2
  local in_it = count(taken)
  if taken >= w - 1 and in_it > 0 then
    call('HSET', key, int(taken), int(math.max(0, in_it - cost)))
  end
end
heal(ttl)
return format('%d %d %d %d', allowed and 1 or 0, n, previous, ms)
