-- The slots of an agent: a sorted set of runs, `task_id/run_id`. A score above zero is the moment until which a run has
-- a slot: the end of its lease, or, for a run that a slot is kept for, the end of the time in which its bell must be
-- answered. Runs that wait for a slot have scores below zero, in the order in which they were made.
local BELOW_ZERO = 2 ^ 52

-- How many slots are taken. A run whose lease ran out keeps its slot until it is declared lost; a kept slot whose bell
-- nobody answered is freed.
local function taken(slots, leases)
  local count = redis.call('ZCOUNT', slots, '(' .. NOW, '+inf')
  for _, it in ipairs(redis.call('ZRANGEBYSCORE', slots, 0, NOW)) do
    if redis.call('ZSCORE', leases, it) then count = count + 1 else redis.call('ZREM', slots, it) end
  end
  return count
end
