-- Tiers: several limits at once over one row of slices of g ms, aligned to the Unix epoch. All or nothing.
--
-- KEYS[1]     hash: number of the slice (floor of Unix ms / g) -> cost admitted in it
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3]     g, ms
-- ARGV[4]     cost, hits (seed: the count to come up to)
-- ARGV[5..]   for each tier: how many slices it looks at, the current one included; its limit, hits
-- the last four, see clock.lua: of return the instant is when the slice of the admission begins
--
-- Returns "allowed tier used slice": 1 or 0; the tier that binds, from 0; its count with this request if it is allowed;
-- and the number of the slice with whose start that tier has room again (allowed: has forgotten everything).

--include clock
local g, cost = args[3] + 0, args[4] + 0
local ms = s * 1000 + (ns - ns % 1e6) / 1e6
local current = (ms - ms % g) / g

local stored = call('HGETALL', key) -- the slice, its count, and so on
local n = #stored
local have, field -- the count of the current slice, and its number as it is stored
local sorted = true -- the oldest is first, as in a small hash that grew slice by slice
for i = 1, n, 2 do
  local name, slice, count = stored[i], stored[i] + 0, stored[i + 1] + 0
  stored[i], stored[i + 1] = slice, count
  if i > 1 and stored[i - 2] > slice then sorted = false end
  -- A clock that is set back goes on in the latest slice.
  if slice >= current then current, have, field = slice, count, name end
end

-- An admission has the figures of the tier with the least room left; of equals, the first. A denial has those of the first
-- tier that can never admit the cost; else, of those without room, of the one that gets room last, and of equals the first.
-- It gets room when slices worth the missing cost have left its span. The last tier, which most often is the longest,
-- comes first. Once it denies, a run looks at a shorter one only if that may get room as late: a client sends no run with a
-- cost that a tier can never admit, but a peek.
local stop = (op == 'seed' or op == 'refund' or op == 'return') and #args - 4 or #args
local allowed, never, tier, used, slice = true, false, 0, 0, 0
local least, latest -- room; slice
local most, longest = 0, 0
for i = stop - 1, 5, -2 do
  local look = args[i] + 0
  if look > longest then longest = look end
  if not latest or current + look >= latest or op ~= 'run' then
    local fit, over, sum = args[i + 1] - cost, current - look, 0
    for j = 1, n, 2 do
      if stored[j] > over then sum = sum + stored[j + 1] end
    end
    if sum > MAX then sum = MAX end
    if sum > most then most = sum end
    local left = fit - sum
    if left >= 0 then
      if allowed and (not least or left <= least) then tier, used, slice, least = i, sum, current + look, left end
    elseif fit < 0 then
      tier, used, slice, allowed, never = i, sum, current, false, true
    elseif not never then
      allowed = false
      if not sorted then
        local row = {}
        for j = 1, n, 2 do row[#row + 1] = {stored[j], stored[j + 1]} end
        table.sort(row, function(a, b) return a[1] < b[1] end)
        for j, x in ipairs(row) do stored[2 * j - 1], stored[2 * j] = x[1], x[2] end
        sorted = true
      end
      local at = current + look
      for j = 1, n, 2 do
        if stored[j] > over then
          left = left + stored[j + 1]
          if left >= 0 then
            at = stored[j] + look
            break
          end
        end
      end
      if not latest or at >= latest then tier, used, slice, latest = i, sum, at, at end
    end
  end
end
local ttl = (current + longest) * g - ms + grace

if op == 'run' and (have or not allowed) then
  local reply = '0 %d %d %d'
  if allowed then
    used = used + cost
    call('HINCRBY', key, field, args[4])
    reply = '1 %d %d %d'
  end
  if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', ttl)) end
  return format(reply, (tier - 5) / 2, used, slice) .. clock
end

--include instants

-- merge bounds the slices of long tiers: those of age a are merged into blocks of the largest power of 2 up to a/32, at
-- the last slice of the block. So a hit counts for up to 1/32 longer than its tier, and there are 32 blocks for each
-- doubling of the age. Tiers of up to EXACT slices are not merged.
local EXACT = 1024
local function merge(slice, n)
  local block = 1
  while 64 * block <= current - slice do block = 2 * block end
  local last = slice - slice % block + block - 1
  if last ~= slice then
    call('HINCRBY', key, int(last), int(n))
    call('HDEL', key, int(slice))
  end
end

local function put(slice, n)
  call('HSET', key, int(slice), int(n))
  for i = 1, #stored, 2 do
    if stored[i] <= current - longest then
      call('HDEL', key, int(stored[i]))
    elseif longest > EXACT and stored[i] ~= slice then
      merge(stored[i], stored[i + 1])
    end
  end
  call('PEXPIRE', key, int(ttl))
  alive = true
end

-- refund takes the cost out of the slice it was put into. A return names the instant at which that begins. A refund names
-- the end of the period, a tier's length later; which tier's, it does not say: of the slices with a cost that it can have
-- been, the latest gives it back.
local function refund(at)
  local from, count
  for i = 1, #stored, 2 do
    local began, there = stored[i], stored[i + 1]
    local fits = op == 'return' and began == at
    for j = 5, op == 'refund' and there > 0 and stop or 0, 2 do
      fits = fits or began + args[j] == at
    end
    if fits and began > current - longest and (not from or began > from) then from, count = began, there end
  end
  if from then put(from, math.max(0, count - cost)) end
end

have = have or 0
if op == 'run' or op == 'peek' then
  if allowed then
    used = used + cost
    if op == 'run' then put(current, have + cost) end
  end
elseif op == 'charge' then
  put(current, plus(have, cost))
elseif op == 'seed' then
  -- The sum that is nearest comes up to it; what the others lack of it is not made up for.
  if before(s, ns, END_S, END_NS) and most < cost then put(current, plus(have, cost - most)) end
elseif op == 'refund' then
  refund(edge(g))
elseif op == 'return' then
  refund(math.floor(millis(args[#args - 3] + 0, args[#args - 2] + 0) / g))
end
heal(ttl)
return format('%d %d %d %d', allowed and 1 or 0, (tier - 5) / 2, used, slice) .. clock
