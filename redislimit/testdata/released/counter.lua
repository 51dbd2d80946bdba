

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

local d_s, d_ns = args[3] + 0, args[4] + 0
local limit, cost = args[5] + 0, args[6] + 0

local f = call('HMGET', key, 's', 'ns', 'n')
local start_s, start_ns, n = tonumber(f[1] or s), tonumber(f[2] or ns), tonumber(f[3] or 0)
local fresh = not f[1]
local end_s, end_ns = add(start_s, start_ns, d_s, d_ns)
if not before(s, ns, end_s, end_ns) then
  fresh, n, start_s, start_ns = true, 0, s, ns
  end_s, end_ns = add(s, ns, d_s, d_ns)
end

local function ttl()
  return millisUp(sub(end_s, end_ns, s, ns)) + grace
end

local function put(count)
  if not fresh then
    call('HSET', key, 'n', int(count))
  else
    call('HSET', key, 's', int(start_s), 'ns', int(start_ns), 'n', int(count))
    call('PEXPIRE', key, int(ttl()))
    alive = true
  end
end

local allowed = n <= limit - cost
if op == 'run' or op == 'peek' then
  if allowed then
    n = n + cost
    if op == 'run' then put(n) end
  end
elseif op == 'charge' then
  put(plus(n, cost))
elseif op == 'seed' then
  if before(s, ns, END_S, END_NS) and n < cost then
    if fresh and before(END_S, END_NS, end_s, end_ns) then
      start_s, start_ns = sub(END_S, END_NS, d_s, d_ns)
      end_s, end_ns = END_S, END_NS
    end
    put(cost)
  end
elseif op == 'refund' then
  if not fresh and end_s == END_S and end_ns == END_NS then put(math.max(0, n - cost)) end
end
heal(ttl())
return format('%d %d %d %d', allowed and 1 or 0, n, end_s, end_ns)
