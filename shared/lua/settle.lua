-- End a run and, with it, its task. A repeated call with the same claim gets the same answer.
-- ARGV  task_id  run_id  epoch  token  only_expired ('1': refuse while the lease is good)  run status  ended_as
--       task status  result ('' = leave)  error type  error message  usage ('' = leave)  working_ms
--       then type, data, … of the events that go before, then the data of task.settled
-- Returns {'settled'} or {'refused'}
local task_id, run_id, epoch, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local run = redis.call('HMGET', RUN, 'status', 'epoch', 'token', 'lease_until_ms')
if run[1] == ARGV[6] and run[1] ~= 'running' and run[2] == epoch and run[3] == token then return {'settled'} end
if not holds(run_id, epoch, token) then return {'refused'} end
if ARGV[5] == '1' and tonumber(run[4]) > NOW then return {'refused'} end
local refused = move(ARGV[8], '')
if refused then return refused end
redis.call('HSET', RUN, 'status', ARGV[6], 'ended_as', ARGV[7], 'ended_ms', int(NOW), 'lease_until_ms', '0',
  'error_type', ARGV[10], 'error_message', ARGV[11])
redis.call('HSET', TASK, 'run_id', '', 'token', '', 'stopped_ms', int(NOW), 'error_type', ARGV[10], 'error_message', ARGV[11])
redis.call('HINCRBY', TASK, 'working_ms', ARGV[13])
if ARGV[12] ~= '' then redis.call('HSET', TASK, 'usage', ARGV[12]) end
if ARGV[9] ~= '' then redis.call('SET', RESULT, ARGV[9]) end
redis.call('DEL', INPUT)
unhold(task_id, run_id)
redis.call('ZREM', SLOTS, run_id)
for i = 14, #ARGV - 1, 2 do emit(ARGV[i], run_id, ARGV[i + 1]) end
emit('task.settled', run_id, ARGV[#ARGV])
return {'settled'}
