-- forget removes the count KEYS[1], and leaves a number by which the returns of what it counted are known, and the
-- instant, as take_back.lua does. Both live as long as what was counted would have, or for a day if it had lost its time
-- to live. It returns how many counts it removed: 1, or 0 if there was none.
local function forget(reset, back, number, ms)
  local life = redis.call('PTTL', KEYS[1])
  if life == -1 then life = 86400000 end
  local removed = redis.call('DEL', KEYS[1])
  if removed == 1 then
    life = string.format('%d', math.max(1, life, redis.call('PTTL', reset), redis.call('PTTL', back)))
    redis.call('PSETEX', reset, life, number)
    redis.call('PSETEX', back, life, string.format('%d', ms))
  end
  return removed
end
