-- now returns the op of ARGV[1], and now: as it follows an op, and in ms.
local function now()
  local op, now = string.match(ARGV[1], '^(%a+)(.*)$')
  if now == '' then
    local time = redis.call('TIME')
    now = string.format(' %d %d', time[1] + 0, time[2] * 1000)
  end
  local s, ns = string.match(now, '^ (%-?%d+) (%d+)$')
  return op, now, s * 1000 + math.floor(ns / 1e6)
end
