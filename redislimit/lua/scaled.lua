--include times
-- scaled is a span of t_s seconds and t_ns nanoseconds, times the ratio of two spans, which are "seconds nanoseconds": it
-- is rounded up if up is 1, and down if that is 0, and at most the longest that a client can count. A span below 0 is
-- as it was.
scaled = function(t_s, t_ns, from, to, up)
  if t_ns < 0 then t_s, t_ns = t_s - 1, t_ns + 1e9 end
  if t_s < 0 then return t_s, t_ns end
  local from_s, from_ns = match(from, '^(%d+) (%d+)$')
  local to_s, to_ns = match(to, '^(%d+) (%d+)$')
  from_s, from_ns, to_s, to_ns = from_s + 0, from_ns + 0, to_s + 0, to_ns + 0
  -- t is k times from, and r. A double may miss k by a few.
  local k, r_s, r_ns = math.floor((t_s * 1e9 + t_ns) / (from_s * 1e9 + from_ns)), 0, 0
  if k < MAX then
    r_s, r_ns = times(from_s, from_ns, k)
    r_s, r_ns = t_s - r_s, t_ns - r_ns
    if r_ns < 0 then r_s, r_ns = r_s - 1, r_ns + 1e9 end
  else
    k = MAX
  end
  while r_s < 0 do
    k, r_s, r_ns = k - 1, r_s + from_s, r_ns + from_ns
    if r_ns >= 1e9 then r_s, r_ns = r_s + 1, r_ns - 1e9 end
  end
  while r_s > from_s or (r_s == from_s and r_ns >= from_ns) do
    k, r_s, r_ns = k + 1, r_s - from_s, r_ns - from_ns
    if r_ns < 0 then r_s, r_ns = r_s - 1, r_ns + 1e9 end
  end
  -- k and r times to, divided by from, one bit of to after the other: q, in ns, and m of from.
  local bits = {}
  while to_s > 0 or to_ns > 0 do
    local low = to_s % 2 * 1e9 + to_ns
    bits[#bits + 1] = low % 2
    to_s, to_ns = math.floor(to_s / 2), math.floor(low / 2)
  end
  local k_ns = k % 1e9
  local k_s = (k - k_ns) / 1e9
  local q_s, q_ns, m_s, m_ns = 0, 0, 0, 0
  for i = #bits, 1, -1 do
    q_s, q_ns, m_s, m_ns = 2 * q_s + bits[i] * k_s, 2 * q_ns + bits[i] * k_ns, 2 * m_s + bits[i] * r_s, 2 * m_ns + bits[i] * r_ns
    for _ = 1, 2 do
      if m_ns >= 1e9 then m_s, m_ns = m_s + 1, m_ns - 1e9 end
    end
    while m_s > from_s or (m_s == from_s and m_ns >= from_ns) do
      m_s, m_ns, q_ns = m_s - from_s, m_ns - from_ns, q_ns + 1
      if m_ns < 0 then m_s, m_ns = m_s - 1, m_ns + 1e9 end
    end
    local carry = math.floor(q_ns / 1e9)
    q_s, q_ns = q_s + carry, q_ns - carry * 1e9
  end
  if m_s > 0 or m_ns > 0 then q_ns = q_ns + up end
  if q_ns >= 1e9 then q_s, q_ns = q_s + 1, q_ns - 1e9 end
  if q_s >= 9223372036 then return 9223372036, 0 end
  return q_s, q_ns
end
