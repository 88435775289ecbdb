-- Decide that the caller rings an overdue bell, and put off its next ring, twice as far each time.
-- ARGV  task_id  run_id  ring_again_ms
-- Returns {'ring'}, or {'refused'} where the run is not pending or somebody else rang
local it = member(ARGV[1], ARGV[2])
local due = redis.call('ZSCORE', RING_AT, it)
if not due or tonumber(due) > NOW then return {'refused'} end
if redis.call('HGET', RUN, 'status') ~= 'pending' then
  redis.call('ZREM', RING_AT, it)
  return {'refused'}
end
local rings = redis.call('HINCRBY', RUN, 'rings', 1)
redis.call('ZADD', RING_AT, NOW + tonumber(ARGV[3]) * 2 ^ math.min(rings, 6), it)
return {'ring'}
