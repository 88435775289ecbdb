-- Keep free slots for the runs that have waited longest, of several agents.
-- KEYS  1 leases  2 ring_at, then the slots of each agent
-- ARGV  keep_ms (how long a slot is kept for a run)  ring_again_ms  how many runs of an agent at most,
--       then the number of slots of each agent (0 = no bound)
-- Returns the runs that got a slot: their bells are to be rung now
local admitted = {}
for i = 3, #KEYS do
  local slots, free, page = KEYS[i], tonumber(ARGV[i + 1]), tonumber(ARGV[3])
  local waiting = redis.call('ZRANGEBYSCORE', slots, '-inf', '(0', 'LIMIT', 0, page)
  if #waiting > 0 then
    if free > 0 then free = free - taken(slots, KEYS[1]) else free = #waiting end
    for n = 1, math.min(free, #waiting) do
      redis.call('ZADD', slots, NOW + tonumber(ARGV[1]), waiting[n])
      redis.call('ZADD', KEYS[2], 'XX', NOW + tonumber(ARGV[2]), waiting[n])
      admitted[#admitted + 1] = waiting[n]
    end
  end
end
return admitted
