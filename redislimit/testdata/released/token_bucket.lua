

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
local now = time and time[1] .. ' ' .. time[2] .. '000' or format('%d %d', s, ns)
local cost_s, cost_ns = args[3] + 0, args[4] + 0

local tat_s, tat_ns = s, ns
local stored = call('GET', key)
if stored then
  tat_s, tat_ns = match(stored, '^(%-?%d+) (%d+)$')
  tat_s, tat_ns = tat_s + 0, tat_ns + 0
end
local from_s, from_ns = tat_s, tat_ns
if tat_s < s or (tat_s == s and tat_ns < ns) then from_s, from_ns = s, ns end
local to_s, to_ns = from_s + cost_s, from_ns + cost_ns
if to_ns >= 1e9 then to_s, to_ns = to_s + 1, to_ns - 1e9 end

if op == 'run' or op == 'peek' then
  local full_s, full_ns = s + args[5], ns + args[6]
  if full_ns >= 1e9 then full_s, full_ns = full_s + 1, full_ns - 1e9 end
  local allowed = to_s < full_s or (to_s == full_s and to_ns <= full_ns)
  if allowed then
    local text = format('%d %d', to_s, to_ns)
    if op == 'run' then
      call('PSETEX', key, format('%d', (to_s - s) * 1000 + (to_ns - ns) / 1e6 + 1 + grace), text)
    end
    return '1 ' .. text .. ' ' .. now
  end
  if op == 'run' and call('PTTL', key) == -1 then
    call('PEXPIRE', key, format('%d', (tat_s - s) * 1000 + (tat_ns - ns) / 1e6 + 1 + grace))
  end
  return '0 ' .. (stored or now) .. ' ' .. now
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

local function capped(t_s, t_ns)
  if before(9223372036, 854775807, t_s, t_ns) then return 9223372036, 854775807 end
  return t_s, t_ns
end

local function ttl()
  return math.max(1, millisUp(sub(tat_s, tat_ns, s, ns)) + grace)
end

local function put()
  call('PSETEX', key, int(ttl()), format('%d %d', tat_s, tat_ns))
  alive = true
end

if op == 'charge' then
  tat_s, tat_ns = capped(to_s, to_ns)
  put()
elseif op == 'seed' then
  to_s, to_ns = capped(add(s, ns, cost_s, cost_ns))
  if before(s, ns, END_S, END_NS) and before(tat_s, tat_ns, to_s, to_ns) then
    tat_s, tat_ns = to_s, to_ns
    put()
  end
elseif op == 'refund' then
  if before(s, ns, tat_s, tat_ns) and before(s, ns, END_S, END_NS) then
    local back_s, back_ns = sub(END_S, END_NS, s, ns)
    if before(cost_s, cost_ns, back_s, back_ns) then back_s, back_ns = cost_s, cost_ns end
    tat_s, tat_ns = sub(tat_s, tat_ns, back_s, back_ns)
    if before(tat_s, tat_ns, s, ns) then tat_s, tat_ns = s, ns end
    put()
  end
end
heal(ttl())
return format('0 %d %d %s', tat_s, tat_ns, now)
