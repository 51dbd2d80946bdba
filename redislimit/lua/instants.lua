-- What scripts share and most calls do without: counts, instants, and the life of keys.

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

-- END is the instant that a seed or refund is about, which may be up to OFF ns off.
local END_S, END_NS, OFF
if op == 'seed' or op == 'refund' then
  local span_s, span_ns
  END_S, END_NS, span_s, span_ns = args[#args - 3] + 0, args[#args - 2] + 0, args[#args - 1] + 0, args[#args] + 0
  OFF = span_s * 1e9 + span_ns
  if op == 'seed' then
    local at_s, at_ns = add(s, ns, span_s, span_ns)
    if math.abs(at_s - END_S) > 1 or before(at_s, at_ns, END_S, END_NS) then END_S, END_NS = at_s, at_ns end
  end
end

-- off is by how many ns an instant differs from END.
local function off(s1, ns1)
  return math.abs((s1 - END_S) * 1e9 + ns1 - END_NS)
end

-- edge is which edge of windows or slices of d ms, counted from the Unix epoch, END is.
local function edge(d)
  return math.floor((END_S * 1000 + (END_NS + math.min(OFF, d * 5e5)) / 1e6) / d)
end

-- millis is the whole millisecond an instant lies in; millisUp rounds up.
local function millis(s1, ns1)
  return s1 * 1000 + math.floor(ns1 / 1e6)
end

local function millisUp(s1, ns1)
  return s1 * 1000 + math.ceil(ns1 / 1e6)
end

-- plus adds two counts and stops at MAX.
local function plus(a, b)
  if a > MAX - b then return MAX end
  return a + b
end

-- A key that has lost its time to live would stay for ever. A call that has not just set one (alive) ends with heal, which
-- gives such a key a new one, unless the call was only to look.
local alive = false
local function heal(ms)
  if not alive and op ~= 'peek' and call('PTTL', key) == -1 then call('PEXPIRE', key, int(ms)) end
end
