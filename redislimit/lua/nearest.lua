-- nearest is the instant of the hit that is next to one, before or after it, if that is less than OFF away, or else that one.
local function nearest(at_s, at_ns, last, next)
  local least = OFF
  local hit_s, hit_ns = at_s, at_ns
  for _, h in ipairs({last or false, next or false}) do
    local by = h and math.abs((h.s - at_s) * 1e9 + h.ns - at_ns)
    if by and by <= least then hit_s, hit_ns, least = h.s, h.ns, by end
  end
  return hit_s, hit_ns
end
