

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
local d, limit, cost, meta = args[3] + 0, args[4] + 0, args[5] + 0, args[6]
local d_s, d_ns = (d - d % 1000) / 1000, d % 1000 * 1e6
local WRAP = MAX + 1

local ELEMENT = '<dI4dddI4dd'
local struct = rawget(_G, 'struct') or {
  pack = function(_, ...) return format(string.rep('%17d', 8), ...) end,
  unpack = function(_, element)
    local v = {}
    for i = 1, 8 do v[i] = tonumber(string.sub(element, 17 * i - 16, 17 * i)) end
    return unpack(v)
  end,
}

local last = call('LINDEX', key, '-1')
if last and op == 'run' then
  local last_s, last_ns, _, sum, first_s, first_ns, first_cost, base = struct.unpack(ELEMENT, last)
  if (s - last_s) * 1e9 + ns - last_ns >= 0 and (first_s + d_s - s) * 1e9 + first_ns + d_ns - ns > 0 then
    local used = (sum - base) % WRAP
    local need = used - (limit - cost)
    if need <= 0 and sum + cost <= MAX then
      call('RPUSH', key, struct.pack(ELEMENT, s, ns, cost, sum + cost, first_s, first_ns, first_cost, base) .. meta)
      call('PEXPIRE', key, format('%d', d + grace))
      return format('1 %d %d %d', used + cost, s, ns)
    elseif need > 0 and need <= first_cost then
      if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', d + grace)) end
      return format('0 %d %d %d', used, first_s, first_ns)
    end
  end
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

local length = call('LLEN', key)

local function parse(element)
  local h = {}
  h.s, h.ns, h.cost, h.sum = struct.unpack(ELEMENT, element)
  return h
end

local SIZE = #struct.pack(ELEMENT, 0, 0, 0, 0, 0, 0, 0, 0)
local function text(element)
  return string.sub(element, SIZE + 1)
end

local function at(rank)
  return parse(call('LINDEX', key, int(rank)))
end

local function spell(h, first)
  return struct.pack(ELEMENT, h.s, h.ns, h.cost, h.sum, first.s, first.ns, first.cost, (first.sum - first.cost) % WRAP)
end

local function rank(low, passes)
  local high, step = low, 1
  while high < length and not passes(at(high)) do
    low, high, step = high + 1, high + step, step * 2
  end
  high = math.min(high, length)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if passes(at(middle)) then high = middle else low = middle + 1 end
  end
  return low
end

local clock_s, clock_ns = s, ns
local newest = last and parse(last)
if newest and before(s, ns, newest.s, newest.ns) then s, ns = newest.s, newest.ns end

local cut_s, cut_ns = sub(s, ns, d_s, d_ns)
local over = rank(0, function(h) return before(cut_s, cut_ns, h.s, h.ns) end)
if op == 'entries' then
  local entries = call('LRANGE', key, int(over), '-1')
  for i, element in ipairs(entries) do
    local h = parse(element)
    entries[i] = format('%d %d %d %d ', h.s, h.ns, h.cost, h.sum) .. text(element)
  end
  return entries
end

local oldest = over < length and at(over)
local base = oldest and (oldest.sum - oldest.cost) % WRAP
local used = oldest and (newest.sum - base) % WRAP or 0

local function put(c)
  if over > 0 then call('LTRIM', key, int(over), '-1') end
  local sum = newest and newest.sum or 0
  if sum >= WRAP - c then sum = sum - (WRAP - c) else sum = sum + c end
  local h = {s = s, ns = ns, cost = c, sum = sum}
  call('RPUSH', key, spell(h, oldest or h) .. meta)
  call('PEXPIRE', key, int(d + grace))
  alive = true
end

local function leaver(need)
  return at(math.min(length - 1, rank(over, function(h) return (h.sum - base) % WRAP >= need end)))
end

local function give_back(hit_s, hit_ns, c)
  local from = rank(over, function(h) return not before(h.s, h.ns, hit_s, hit_ns) end)
  local elements, hits, given = call('LRANGE', key, int(from), '-1'), {}, {}
  for i = #elements, 1, -1 do
    local h = parse(elements[i])
    hits[i], given[i] = h, h.s == hit_s and h.ns == hit_ns and math.min(h.cost, c) or 0
    c = c - given[i]
  end
  local first, less = from > 0 and at(0) or hits[1], 0 -- less: of the sums, so far
  for i, h in ipairs(hits) do
    less = less + given[i]
    if less > 0 then
      h.cost, h.sum = h.cost - given[i], (h.sum - less) % WRAP
      call('LSET', key, int(from + i - 1), spell(h, first) .. text(elements[i]))
    end
  end
end

local allowed = used <= limit - cost
local hit_s, hit_ns = s, ns
if op == 'run' or op == 'peek' then
  if allowed then
    used = used + cost
    if op == 'run' then put(cost) end
  elseif oldest then
    local h = leaver(used - (limit - cost))
    hit_s, hit_ns = h.s, h.ns
  end
elseif op == 'charge' then
  if used < MAX then put(math.min(cost, MAX - used)) end
elseif op == 'seed' then
  if before(clock_s, clock_ns, END_S, END_NS) and used < cost then put(cost - used) end
elseif op == 'refund' and before(clock_s, clock_ns, END_S, END_NS) then
  local taken_s, taken_ns = sub(END_S, END_NS, d_s, d_ns)
  give_back(taken_s, taken_ns, cost)
end
heal(d + grace)
return format('%d %d %d %d', allowed and 1 or 0, used, hit_s, hit_ns)
