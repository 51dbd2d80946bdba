-- List: the admitted requests with their metadata, oldest first, in a period of d that starts with its first hit.
--
-- KEYS[1]     list: "seconds nanoseconds cost sum meta" for each request; sum is the cost up to and with it
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3,4]   d, seconds and nanoseconds
-- ARGV[5]     limit, hits
-- ARGV[6]     cost, hits (seed: the count to come up to)
-- ARGV[7]     meta, kept with the hit
-- ARGV[8,9]   of return: the instant of the hit, Unix seconds and nanoseconds
--
-- Returns "allowed count end_s end_ns": 1 or 0, the count with this request if it is allowed, the end of the period.
-- The op "entries" returns the elements that count, oldest first.

--include clock
--include instants

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
  -- The first hit's instant is the start of the period, which a seed may have put into the past.
  if not first then at_s, at_ns = start_s, start_ns end
  call('RPUSH', key, spell({s = at_s, ns = at_ns, cost = c, sum = n + c, meta = meta}))
  if not first then
    call('PEXPIRE', key, int(ttl()))
    alive = true
  end
end

-- refund takes c from the newest hits that carry meta, then from the newest of the others; the first hit stays, with
-- a cost of 0 if need be: it holds the start of the period. It looks at the newest 1000: each costs 10 µs. If an instant is
-- given, it looks only at the hits that have it.
local function refund(c, hit_s, hit_ns)
  local older = math.max(0, call('LLEN', key) - 1000)
  local hits, left = call('LRANGE', key, int(older), -1), c
  for i, element in ipairs(hits) do hits[i] = parse(element) end
  for _, same in ipairs({true, false}) do
    for i = #hits, 1, -1 do
      local h = hits[i]
      local fits = not hit_s or (h.s == hit_s and h.ns == hit_ns)
      if left > 0 and fits and (h.meta == meta) == same then
        local part = math.min(h.cost, left)
        h.cost, left = h.cost - part, left - part
      end
    end
  end
  if left == c then return end
  local sum, kept = 0, older
  if older > 0 then sum = parse(call('LINDEX', key, int(older - 1))).sum end
  for i, h in ipairs(hits) do
    if h.cost > 0 or older + i == 1 then
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
  if first and off(end_s, end_ns) <= OFF then refund(cost) end
elseif op == 'return' then
  if first then refund(cost, args[8] + 0, args[9] + 0) end
end
heal(ttl())
return format('%d %d %d %d', allowed and 1 or 0, n, end_s, end_ns) .. clock
