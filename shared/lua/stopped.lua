-- The code of a cancelled run has really ended: say when, and free its slot.
-- ARGV  run_id
-- Returns {'stopped'} or {'refused'} where the run was not cancelled
if redis.call('HGET', RUN, 'status') ~= 'cancelled' then return {'refused'} end
unhold(redis.call('HGET', TASK, 'task_id'), ARGV[1])
redis.call('ZREM', SLOTS, ARGV[1])
redis.call('HSETNX', RUN, 'stopped_ms', int(NOW))
redis.call('HSET', TASK, 'stopped_ms', int(NOW))
return {'stopped'}
