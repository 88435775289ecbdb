-- The code of a cancelled run has really ended: say when, and free its slot. Its task's time and usage are told only as
-- long as no later run has times and a usage of its own.
-- ARGV  task_id  run_id  epoch  token  only_expired ('1': refuse while the lease is good)  usage of the task ('' = leave)
-- Returns {'stopped'}, or {'refused'} where the run was not cancelled under this claim
local task_id, run_id = ARGV[1], ARGV[2]
local run = redis.call('HMGET', RUN, 'status', 'epoch', 'token')
if run[1] ~= 'cancelled' or run[2] ~= ARGV[3] or run[3] ~= ARGV[4] then return {'refused'} end
local lease_until = tonumber(redis.call('ZSCORE', LEASES, member(task_id, run_id)) or '0')
if ARGV[5] == '1' and lease_until > NOW then return {'refused'} end
unhold(task_id, run_id)
local first = redis.call('HSETNX', RUN, 'stopped_ms', int(NOW)) == 1
if redis.call('LINDEX', RUNS, -1) == run_id then
  if first then redis.call('HSET', TASK, 'stopped_ms', int(NOW)) end
  if ARGV[6] ~= '' then redis.call('HSET', TASK, 'usage', ARGV[6]) end
end
return {'stopped'}
