-- Sliding log: every admitted request of the last d ms, one element each.
--
-- KEYS[1]     list, the oldest first, of ELEMENT and meta: seconds, nanoseconds, cost and sum of the hit; seconds,
--             nanoseconds and cost of the first hit of the list, and the sum before it. A sum is the cost of every hit so
--             far, the hit's own included, modulo 2^53, so that the cost of a run of hits is a difference. Of the four that
--             are about the first hit only those of the last element are kept up to date: most calls read no other
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3]     d, ms
-- ARGV[4]     limit, hits
-- ARGV[5]     cost, hits (seed: the count to come up to)
-- ARGV[6]     meta, kept with the hit
--
-- Returns "allowed used seconds nanoseconds": 1 or 0, the cost in the last d with this request if it is allowed, and the
-- instant of a hit: of this one if it is allowed, else of the one that must have left for it to pass.
-- The op "entries" returns what counts, oldest first: "seconds nanoseconds cost sum meta".

--include clock
local d, limit, cost, meta = args[3] + 0, args[4] + 0, args[5] + 0, args[6]
local d_s, d_ns = (d - d % 1000) / 1000, d % 1000 * 1e6
local WRAP = MAX + 1

-- In binary, which takes 2 µs less than digits do: a double holds every integer up to MAX. The double of Redis that many
-- test with, miniredis, has no struct, and gets digits in columns.
local ELEMENT = '<dI4dddI4dd'
local struct = rawget(_G, 'struct') or {
  pack = function(_, ...) return format(string.rep('%17d', 8), ...) end,
  unpack = function(_, element)
    local v = {}
    for i = 1, 8 do v[i] = tonumber(string.sub(element, 17 * i - 16, 17 * i)) end
    return unpack(v)
  end,
}

-- Most calls find every hit alive and a clock that goes forward, and are admitted or wait for the first hit to leave. A
-- difference in nanoseconds that no number holds is rounded; its sign is right.
local last = call('LINDEX', key, '-1')
if last and op == 'run' then
  local last_s, last_ns, _, sum, first_s, first_ns, first_cost, base = struct.unpack(ELEMENT, last)
  if (s - last_s) * 1e9 + ns - last_ns >= 0 and (first_s + d_s - s) * 1e9 + first_ns + d_ns - ns > 0 then
    local used = (sum - base) % WRAP
    local need = used - (limit - cost)
    if need <= 0 and sum + cost <= MAX then
      call('RPUSH', key, struct.pack(ELEMENT, s, ns, cost, sum + cost, first_s, first_ns, first_cost, base) .. meta)
      call('PEXPIRE', key, format('%d', d + grace))
      return format('1 %d %d %d', used + cost, s, ns) .. clock
    elseif need > 0 and need <= first_cost then
      if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', d + grace)) end
      return format('0 %d %d %d', used, first_s, first_ns) .. clock
    end
  end
end

--include instants

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

-- rank is that of the first hit from low on that passes, or length. Those that pass come after those that do not; most
-- often it is near.
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

-- The hits up to the cut are over. They leave the list with the next that is added.
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

-- leaver is the first hit with whose leaving at least need has left, or the last.
local function leaver(need)
  return at(math.min(length - 1, rank(over, function(h) return (h.sum - base) % WRAP >= need end)))
end

--include nearest
-- refund takes c away from the hits of an instant, the newest first, and from the sums of all that follow. A hit whose
-- cost is 0 stays. It costs 10 µs a hit that follows: with more than 1000 of them nothing is given back.
local function refund(hit_s, hit_ns, c)
  local function from_it(h) return not before(h.s, h.ns, hit_s, hit_ns) end
  local from = rank(over, from_it)
  if OFF > 0 then
    hit_s, hit_ns = nearest(hit_s, hit_ns, from > over and at(from - 1), from < length and at(from))
    from = rank(over, from_it)
  end
  if length - from > 1000 then return end
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
  refund(taken_s, taken_ns, cost)
end
heal(d + grace)
return format('%d %d %d %d', allowed and 1 or 0, used, hit_s, hit_ns) .. clock
