

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
local limit, cost, meta = args[5] + 0, args[6] + 0, args[7]

local function parse(element)
  local hit_s, hit_ns, c, sum, text = string.match(element or '', '^(-?%d+) (%d+) (%d+) (%d+) (.*)$')
  if not hit_s then return nil end
  return {s = tonumber(hit_s), ns = tonumber(hit_ns), cost = tonumber(c), sum = tonumber(sum), meta = text}
end

local function spell(h)
  return format('%d %d %d %d ', h.s, h.ns, h.cost, h.sum) .. h.meta
end

local first, last = parse(call('LINDEX', key, 0)), parse(call('LINDEX', key, -1))
local start_s, start_ns = s, ns
if first then start_s, start_ns = first.s, first.ns end
local end_s, end_ns = add(start_s, start_ns, d_s, d_ns)
local stale = first ~= nil and not before(s, ns, end_s, end_ns)
if stale then
  first, last, start_s, start_ns = nil, nil, s, ns
  end_s, end_ns = add(s, ns, d_s, d_ns)
end
if op == 'entries' then return stale and {} or call('LRANGE', key, 0, -1) end

local n = last and last.sum or 0

local function ttl()
  return millisUp(sub(end_s, end_ns, s, ns)) + grace
end

local function push(c)
  if stale then call('DEL', key) end
  local at_s, at_ns = s, ns
  if not first then at_s, at_ns = start_s, start_ns end
  call('RPUSH', key, spell({s = at_s, ns = at_ns, cost = c, sum = n + c, meta = meta}))
  if not first then
    call('PEXPIRE', key, int(ttl()))
    alive = true
  end
end

local function give_back(c)
  local hits, left = call('LRANGE', key, 0, -1), c
  for i, element in ipairs(hits) do hits[i] = parse(element) end
  for _, same in ipairs({true, false}) do
    for i = #hits, 1, -1 do
      local h = hits[i]
      if left > 0 and (h.meta == meta) == same then
        local part = math.min(h.cost, left)
        h.cost, left = h.cost - part, left - part
      end
    end
  end
  local sum, kept = 0, 0
  for i, h in ipairs(hits) do
    if h.cost > 0 or i == 1 then
      sum = sum + h.cost
      h.sum = sum
      call('LSET', key, int(kept), spell(h))
      kept = kept + 1
    end
  end
  call('LTRIM', key, 0, int(kept - 1))
end

local allowed = n <= limit - cost
if op == 'run' or op == 'peek' then
  if allowed then
    if op == 'run' then push(cost) end
    n = n + cost
  end
elseif op == 'charge' then
  if n < MAX then push(math.min(cost, MAX - n)) end
elseif op == 'seed' then
  if before(s, ns, END_S, END_NS) and n < cost then
    if not first and before(END_S, END_NS, end_s, end_ns) then
      start_s, start_ns = sub(END_S, END_NS, d_s, d_ns)
      end_s, end_ns = END_S, END_NS
    end
    push(cost - n)
  end
elseif op == 'refund' then
  if first and end_s == END_S and end_ns == END_NS then give_back(cost) end
end
heal(ttl())
return format('%d %d %d %d', allowed and 1 or 0, n, end_s, end_ns)
