-- Sorted set: the sliding log as the original keeps it: every admitted request of the last d ms, one member each.
--
-- KEYS[1]     sorted set: score: Unix ms of the hit
--             member: "seq seconds nanoseconds cost sum meta"; seq (16 digits) orders the hits of one ms; sum is the
--             cost of every hit so far, this one included, modulo 2^53, so that the cost of a run of hits is a difference
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3]     d, ms
-- ARGV[4]     limit, hits
-- ARGV[5]     cost, hits (seed: the count to come up to)
-- ARGV[6]     meta, kept with the hit
--
-- Returns "allowed used seconds nanoseconds": 1 or 0, the cost in the last d with this request if it is allowed, and the
-- instant of a hit: of this one if it is allowed, else of the one that must have left for it to pass.
-- The op "entries" returns the members that count, oldest first.

--include clock
local d, limit, cost, meta = args[3] + 0, args[4] + 0, args[5] + 0, args[6]
local d_s, d_ns = (d - d % 1000) / 1000, d % 1000 * 1e6
local WRAP = MAX + 1
local MEMBER = '^(%d+) (-?%d+) (%d+) (%d+) (%d+) '

-- Most calls find every hit alive and a clock that goes forward, and are admitted or wait for the first hit to leave.
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
    -- Not by arithmetic: there are interpreters that take the zeros before it for octal.
    local member = format('%016d %d %d %d %d ', tonumber(seq) + 1, s, ns, cost, sum + cost) .. meta
    call('ZADD', key, format('%d', s * 1000 + (ns - ns % 1e6) / 1e6), member)
    call('PEXPIRE', key, format('%d', d + grace))
    return format('1 %d %d %d', used + cost, s, ns) .. clock
  elseif live and need > 0 and need <= first_cost + 0 then
    if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', d + grace)) end
    return format('0 %d %s %s', used, first_s, first_ns) .. clock
  end
end

--include instants

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

-- The hits up to the cut are over: those of earlier milliseconds by score, those of the same one by their own instant.
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

-- leaver is the first hit with whose leaving at least need has left: the sums rise, so halve.
local function leaver(need)
  local low, high = over, call('ZCARD', key) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if (at(middle).sum - base) % WRAP >= need then high = middle else low = middle + 1 end
  end
  return at(low)
end

--include nearest
-- refund takes c away from the hits of an instant, the newest first, and from the sums of all that follow. It costs
-- 10 µs a hit that follows: with more than 1000 of them nothing is given back.
local function refund(hit_s, hit_ns, c)
  if OFF > 0 then
    local from = call('ZCOUNT', key, '-inf', '(' .. int(millis(hit_s, hit_ns)))
    local last, next = from > 0 and at(from - 1), at(from)
    while next and before(next.s, next.ns, hit_s, hit_ns) do
      from = from + 1
      last, next = next, at(from)
    end
    hit_s, hit_ns = nearest(hit_s, hit_ns, last, next)
  end
  if call('ZCOUNT', key, int(millis(hit_s, hit_ns)), '+inf') > 1000 then return end
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
  refund(taken_s, taken_ns, cost)
end
heal(d + grace)
return format('%d %d %d %d', allowed and 1 or 0, used, hit_s, hit_ns) .. clock
