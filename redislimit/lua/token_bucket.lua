-- Token bucket as GCRA: the theoretical arrival time (TAT), the instant at which the bucket is full again.
--
-- KEYS[1]     string: "tat_s tat_ns each_s each_ns used_s used_ns": the TAT, Unix seconds and nanoseconds; the spacing at
--             which tokens flow in until then; when the bucket was last used. The first release has only the TAT: the
--             spacing is that of the next request then
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3,4]   cost, as the seconds and nanoseconds in which its tokens grow back (seed: those of the count to come up to)
-- ARGV[5,6]   the same for a full bucket
-- ARGV[7]     the same for one token: "seconds nanoseconds"
--
-- Returns "allowed tat_s tat_ns now_s now_ns": 1 or 0, the TAT with this request if it is allowed, and the clock, or the
-- last use, if that is later: a clock that is set back adds no tokens. See internal/core/algorithm for a spacing that changes.

--include clock
local now = clock
local cost_s, cost_ns, each = args[3] + 0, args[4] + 0, args[7]

local clock_s, clock_ns = s, ns
local tat_s, tat_ns, own = s, ns, each
local stored = call('GET', key)
if stored then
  local spacing, used_s, used_ns
  tat_s, tat_ns, spacing, used_s, used_ns = match(stored, '^(%-?%d+) (%d+) ?(%d* ?%d*) ?(%-?%d*) ?(%d*)$')
  tat_s, tat_ns = tat_s + 0, tat_ns + 0
  if spacing ~= '' then
    own, used_s, used_ns = spacing, used_s + 0, used_ns + 0
    if s < used_s or (s == used_s and ns < used_ns) then s, ns, now = used_s, used_ns, format(' %d %d', used_s, used_ns) end
  end
end

local changed = own ~= each and each ~= '0 0'
local scaled
if changed then
--include scaled
  if op ~= 'refund' then
    tat_s, tat_ns = scaled(tat_s - s, tat_ns - ns, own, each, 1)
    tat_s, tat_ns = s + tat_s, ns + tat_ns
    if tat_ns >= 1e9 then tat_s, tat_ns = tat_s + 1, tat_ns - 1e9 end
    if tat_s >= 9223372036 then tat_s, tat_ns = 9223372036, 854775807 end -- the last that a client can count
    own = each
  end
end

local from_s, from_ns = tat_s, tat_ns
if tat_s < s or (tat_s == s and tat_ns < ns) then from_s, from_ns = s, ns end
local to_s, to_ns = from_s + cost_s, from_ns + cost_ns
if to_ns >= 1e9 then to_s, to_ns = to_s + 1, to_ns - 1e9 end

if op == 'run' or op == 'peek' then
  local full_s, full_ns = s + args[5], ns + args[6]
  if full_ns >= 1e9 then full_s, full_ns = full_s + 1, full_ns - 1e9 end
  local allowed = to_s < full_s or (to_s == full_s and to_ns <= full_ns)
  if allowed then tat_s, tat_ns = to_s, to_ns end
  local text = format('%d %d', tat_s, tat_ns)
  if op == 'run' and (allowed or changed) then
    -- What is left of the period, which ends at the TAT, rounded up.
    local life = (tat_s - clock_s) * 1000 + (tat_ns - clock_ns) / 1e6 + 1 + grace
    call('PSETEX', key, format('%d', life), text .. ' ' .. each .. now)
  elseif op == 'run' and call('PTTL', key) == -1 then
    call('PEXPIRE', key, format('%d', (tat_s - clock_s) * 1000 + (tat_ns - clock_ns) / 1e6 + 1 + grace))
  end
  return (allowed and '1 ' or '0 ') .. text .. now .. clock
end

--include instants

-- capped is the last instant that a client can count, or t if that is sooner: charges add up.
local function capped(t_s, t_ns)
  if before(9223372036, 854775807, t_s, t_ns) then return 9223372036, 854775807 end
  return t_s, t_ns
end

local function ttl()
  return math.max(1, millisUp(sub(tat_s, tat_ns, clock_s, clock_ns)) + grace)
end

local function put()
  call('PSETEX', key, int(ttl()), format('%d %d ', tat_s, tat_ns) .. own .. now)
  alive = true
end

if op == 'charge' and each ~= '0 0' then
  tat_s, tat_ns = capped(to_s, to_ns)
  put()
elseif op == 'seed' and each ~= '0 0' then
  to_s, to_ns = capped(add(s, ns, cost_s, cost_ns))
  if before(clock_s, clock_ns, END_S, END_NS) and (changed or before(tat_s, tat_ns, to_s, to_ns)) then
    if before(tat_s, tat_ns, to_s, to_ns) then tat_s, tat_ns = to_s, to_ns end
    put()
  end
elseif op == 'refund' then
  if before(s, ns, tat_s, tat_ns) and before(s, ns, END_S, END_NS) then
    -- Of what was taken, that which has grown back since is not given back as well.
    local back_s, back_ns = sub(END_S, END_NS, s, ns)
    if before(cost_s, cost_ns, back_s, back_ns) then back_s, back_ns = cost_s, cost_ns end
    if changed then back_s, back_ns = scaled(back_s, back_ns, each, own, 0) end
    tat_s, tat_ns = sub(tat_s, tat_ns, back_s, back_ns)
    if before(tat_s, tat_ns, s, ns) then tat_s, tat_ns = s, ns end
    put()
  end
end
heal(ttl())
return format('0 %d %d', tat_s, tat_ns) .. now .. clock
