-- End a run. Its task ends with it, or waits for a person. A repeated call with the same claim gets the same answer.
-- ARGV  task_id  run_id  epoch  token  only_expired ('1': refuse while the lease is good)  run status  ended_as
--       task status  task phase  result ('' = leave)  error type  error message  usage ('' = leave)  interrupts
--       then type, data, … of the events that go before, then the type and data of the last event
-- Returns {'settled'} or {'refused'}
local task_id, run_id, epoch, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local run = redis.call('HMGET', RUN, 'status', 'epoch', 'token', 'lease_until_ms')
if run[1] == ARGV[6] and run[1] ~= 'running' and run[2] == epoch and run[3] == token then return {'settled'} end
if not holds(run_id, epoch, token) then return {'refused'} end
if ARGV[5] == '1' and tonumber(run[4]) > NOW then return {'refused'} end
local refused = move(ARGV[8], ARGV[9])
if refused then return refused end
redis.call('HSET', RUN, 'status', ARGV[6], 'ended_as', ARGV[7], 'ended_ms', int(NOW), 'lease_until_ms', '0',
  'error_type', ARGV[11], 'error_message', ARGV[12])
redis.call('HSET', TASK, 'run_id', '', 'token', '', 'stopped_ms', int(NOW), 'error_type', ARGV[11], 'error_message', ARGV[12],
  'interrupts', ARGV[14])
count_work(run[4])
if ARGV[13] ~= '' then redis.call('HSET', TASK, 'usage', ARGV[13]) end
if ARGV[10] ~= '' then redis.call('SET', RESULT, ARGV[10]) end
redis.call('DEL', INPUT)
unhold(task_id, run_id)
redis.call('ZREM', SLOTS, run_id)
for i = 15, #ARGV, 2 do emit(ARGV[i], run_id, ARGV[i + 1]) end
return {'settled'}
