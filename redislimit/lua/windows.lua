-- A hash of counts by the number of their window. It needs field, that of the current window; ttl, how long the current
-- count is needed, ms; and oldest and after, the numbers of the first window that stays and of the one after the current.

local function count(window)
  return tonumber(call('HGET', key, int(window)) or 0)
end

-- put stores the count of the current window. With its first one it removes the windows that are over, and sets the
-- key's time to live; but on a clock that was set back the next window has a count, which must live longer.
local function put(to)
  if call('HSET', key, field, int(to)) == 1 then
    local next = false
    for _, f in ipairs(call('HKEYS', key)) do
      if tonumber(f) < oldest then call('HDEL', key, f) end
      next = next or tonumber(f) == after
    end
    if not next then
      call('PEXPIRE', key, int(ttl))
      alive = true
    end
  end
end
