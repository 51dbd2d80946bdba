

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
local MEMBER = '^(%d+) (-?%d+) (%d+) (%d+) (%d+) '

local last = call('ZRANGE', key, '-1', '-1')[1]
local first = last and call('ZRANGE', key, '0', '0')[1]
if op == 'run' then
  local seq, sum, used, need, live, first_s, first_ns, first_cost = 0, 0, 0, 0, true
  if last then
    local last_s, last_ns, first_sum, _
    seq, last_s, last_ns, _, sum = match(last, MEMBER)
    _, first_s, first_ns, first_cost, first_sum = match(first, MEMBER)
    local end_s, end_ns = first_s + d_s, first_ns + d_ns
    if end_ns >= 1e9 then end_s, end_ns = end_s + 1, end_ns - 1e9 end
    live = (last_s + 0 < s or (last_s + 0 == s and last_ns + 0 <= ns)) and (s < end_s or (s == end_s and ns < end_ns))
    used = (sum - first_sum + first_cost) % WRAP
    need = used - (limit - cost)
  end
  if live and need <= 0 and sum + cost <= MAX then
    local member = format('%016d %d %d %d %d ', tonumber(seq) + 1, s, ns, cost, sum + cost) .. meta
    call('ZADD', key, format('%d', s * 1000 + (ns - ns % 1e6) / 1e6), member)
    call('PEXPIRE', key, format('%d', d + grace))
    return format('1 %d %d %d', used + cost, s, ns)
  elseif live and need > 0 and need <= first_cost + 0 then
    if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', d + grace)) end
    return format('0 %d %s %s', used, first_s, first_ns)
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

local function parse(member)
  local seq, s, ns, c, sum = match(member or '', MEMBER)
  if not seq then return nil end
  return {seq = tonumber(seq), s = tonumber(s), ns = tonumber(ns), cost = tonumber(c), sum = tonumber(sum), member = member}
end

local function at(rank)
  return parse(call('ZRANGE', key, int(rank), int(rank))[1])
end

local function add_hit(h, text)
  local member = format('%016d %d %d %d %d ', h.seq, h.s, h.ns, h.cost, h.sum) .. text
  call('ZADD', key, int(millis(h.s, h.ns)), member)
end

local clock_s, clock_ns = s, ns
local newest = parse(last)
if newest and before(s, ns, newest.s, newest.ns) then s, ns = newest.s, newest.ns end

local cut_s, cut_ns = sub(s, ns, d_s, d_ns)
local over, oldest = 0, parse(first)
local function ended() return oldest and not before(cut_s, cut_ns, oldest.s, oldest.ns) end
if ended() then
  over = call('ZCOUNT', key, '-inf', '(' .. int(millis(cut_s, cut_ns)))
  oldest = at(over)
  while ended() do
    over = over + 1
    oldest = at(over)
  end
end
if op == 'entries' then return call('ZRANGE', key, int(over), -1) end

local base = oldest and (oldest.sum - oldest.cost) % WRAP or 0
local used = oldest and (newest.sum - base) % WRAP or 0

local function put(c)
  if over > 0 then call('ZREMRANGEBYRANK', key, 0, int(over - 1)) end
  local sum = newest and newest.sum or 0
  if sum >= WRAP - c then sum = sum - (WRAP - c) else sum = sum + c end
  add_hit({seq = newest and newest.seq + 1 or 1, s = s, ns = ns, cost = c, sum = sum}, meta)
  call('PEXPIRE', key, int(d + grace))
  alive = true
end

local function leaver(need)
  local low, high = over, call('ZCARD', key) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if (at(middle).sum - base) % WRAP >= need then high = middle else low = middle + 1 end
  end
  return at(low)
end

local function give_back(hit_s, hit_ns, c)
  local members, hits, given = call('ZRANGEBYSCORE', key, int(millis(hit_s, hit_ns)), '+inf'), {}, {}
  for i = #members, 1, -1 do
    local h = parse(members[i])
    hits[i], given[i] = h, h.s == hit_s and h.ns == hit_ns and math.min(h.cost, c) or 0
    c = c - given[i]
  end
  local less = 0 -- of the sums, so far
  for i, h in ipairs(hits) do
    less = less + given[i]
    if less > 0 then
      h.cost, h.sum = h.cost - given[i], (h.sum - less) % WRAP
      call('ZREM', key, members[i])
      if h.cost > 0 then add_hit(h, match(members[i], '^%d+ %-?%d+ %d+ %d+ %d+ (.*)$')) end
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
