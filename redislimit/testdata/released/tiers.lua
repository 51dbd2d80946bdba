

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
local g, cost = args[3] + 0, args[4] + 0
local ms = s * 1000 + (ns - ns % 1e6) / 1e6
local current = (ms - ms % g) / g

local stored = call('HGETALL', key) -- the slice, its count, and so on
local n = #stored
local have -- the count of the current slice
local sorted = true -- the oldest is first, as in a small hash that grew slice by slice
for i = 1, n, 2 do
  local slice, count = stored[i] + 0, stored[i + 1] + 0
  stored[i], stored[i + 1] = slice, count
  if i > 1 and stored[i - 2] > slice then sorted = false end
  if slice > current then current, have = slice, count elseif slice == current then have = count end
end

local stop = (op == 'seed' or op == 'refund') and #args - 2 or #args
local allowed, never, tier, used, slice = true, false, 0, 0, 0
local least, latest -- room; slice
local most, longest = 0, 0
for i = 5, stop, 2 do
  local look, fit, sum = args[i] + 0, args[i + 1] - cost, 0
  local over = current - look
  for j = 1, n, 2 do
    if stored[j] > over then sum = sum + stored[j + 1] end
  end
  if sum > MAX then sum = MAX end
  local left = fit - sum
  if left >= 0 then
    if allowed and (not least or left < least) then tier, used, slice, least = i, sum, current + look, left end
  elseif fit < 0 then
    if not never then tier, used, slice = i, sum, current end
    allowed, never = false, true
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
    if not latest or at > latest then tier, used, slice, latest = i, sum, at, at end
  end
  if sum > most then most = sum end
  if look > longest then longest = look end
end
local ttl = (current + longest) * g - ms + grace

if op == 'run' and (have or not allowed) then
  local reply = '0 %d %d %d'
  if allowed then
    used = used + cost
    call('HINCRBY', key, format('%d', current), args[4])
    reply = '1 %d %d %d'
  end
  if call('PTTL', key) == -1 then call('PEXPIRE', key, format('%d', ttl)) end
  return format(reply, (tier - 5) / 2, used, slice)
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

local function put(slice, n)
  call('HSET', key, int(slice), int(n))
  for i = 1, #stored, 2 do
    if stored[i] <= current - longest then call('HDEL', key, int(stored[i])) end
  end
  call('PEXPIRE', key, int(ttl))
  alive = true
end

local function give_back()
  local last = math.floor(millis(END_S, END_NS) / g)
  local from, count
  for i = 1, #stored, 2 do
    for j = 5, stop, 2 do
      local began = stored[i]
      if began + args[j] == last and began > current - longest and (not from or began > from) then
        from, count = began, stored[i + 1]
      end
    end
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
  if before(s, ns, END_S, END_NS) and most < cost then put(current, plus(have, cost - most)) end
elseif op == 'refund' then
  give_back()
end
heal(ttl)
return format('%d %d %d %d', allowed and 1 or 0, (tier - 5) / 2, used, slice)
