-- Counter: one count, in a period of d that starts with its first hit.
--
-- KEYS[1]     hash: s, ns: the start of the period, Unix seconds and nanoseconds; n: the cost admitted in it
-- ARGV[1,2]   op and now, grace: see clock.lua
-- ARGV[3,4]   d, seconds and nanoseconds
-- ARGV[5]     limit, hits
-- ARGV[6]     cost, hits (seed: the count to come up to)
--
-- Returns "allowed count end_s end_ns": 1 or 0, the count with this request if it is allowed, the end of the period.

--include clock
--include instants

local d_s, d_ns = args[3] + 0, args[4] + 0
local limit, cost = args[5] + 0, args[6] + 0

local f = call('HMGET', key, 's', 'ns', 'n')
local start_s, start_ns, n = tonumber(f[1] or s), tonumber(f[2] or ns), tonumber(f[3] or 0)
local fresh = not f[1]
local end_s, end_ns = add(start_s, start_ns, d_s, d_ns)
if not before(s, ns, end_s, end_ns) then
  fresh, n, start_s, start_ns = true, 0, s, ns
  end_s, end_ns = add(s, ns, d_s, d_ns)
end

local function ttl()
  return millisUp(sub(end_s, end_ns, s, ns)) + grace
end

local function put(count)
  if not fresh then
    call('HSET', key, 'n', int(count))
  else
    call('HSET', key, 's', int(start_s), 'ns', int(start_ns), 'n', int(count))
    call('PEXPIRE', key, int(ttl()))
    alive = true
  end
end

local allowed = n <= limit - cost
if op == 'run' or op == 'peek' then
  if allowed then
    n = n + cost
    if op == 'run' then put(n) end
  end
elseif op == 'charge' then
  put(plus(n, cost))
elseif op == 'seed' then
  if before(s, ns, END_S, END_NS) and n < cost then
    if fresh and before(END_S, END_NS, end_s, end_ns) then
      -- A period that began elsewhere goes on here and ends when it would have.
      start_s, start_ns = sub(END_S, END_NS, d_s, d_ns)
      end_s, end_ns = END_S, END_NS
    end
    put(cost)
  end
elseif op == 'refund' then
  if not fresh and off(end_s, end_ns) <= OFF then put(math.max(0, n - cost)) end
end
heal(ttl())
return format('%d %d %d %d', allowed and 1 or 0, n, end_s, end_ns) .. clock
