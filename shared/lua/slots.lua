-- The slots of an agent: a sorted set of runs, `task_id/run_id`. Above zero stand those that have one, by the end of
-- their lease, and those that one is kept for until their bell is answered, by the end of that time. Below zero stand
-- those that wait for one, by when they were made, the oldest first.
local BELOW_ZERO = 2 ^ 52

-- How many slots are taken. A lease that ran out may be renewed until it is declared lost; a slot whose bell nobody
-- answered is free again.
local function taken(slots, leases, now)
  local count = redis.call('ZCOUNT', slots, '(' .. now, '+inf')
  for _, it in ipairs(redis.call('ZRANGEBYSCORE', slots, 0, now)) do
    if redis.call('ZSCORE', leases, it) then count = count + 1 else redis.call('ZREM', slots, it) end
  end
  return count
end
