-- times is n times a span of s seconds and ns nanoseconds, or the longest that a client can count. No step reaches 2^53.
local function times(s, ns, n)
  if (s + ns / 1e9) * n > 9223372036 then return 9223372036, 0 end
  local low = n % 1048576
  local high = ns * ((n - low) / 1048576)
  local carry = math.floor(high / 1e9)
  local sum = (high - carry * 1e9) * 1048576 + ns * low
  return s * n + carry * 1048576 + math.floor(sum / 1e9), sum % 1e9
end
