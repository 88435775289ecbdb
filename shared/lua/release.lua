-- Return a running run to pending: given back by its worker, or taken from one whose lease ran out.
-- ARGV  task_id  run_id  how ('given_back' | 'lost')  epoch  token  max_attempts (for 'lost')  ring_again_ms
--       usage ('' = leave), then type, data, … of the events that go before
-- Returns {'released'}, {'refused'}, or {'exhausted'} where a lost run has no attempt left (nothing is changed then)
local task_id, run_id, how = ARGV[1], ARGV[2], ARGV[3]
if not holds(TASK, run_id, ARGV[4], ARGV[5]) then return {'refused'} end
local run = redis.call('HMGET', RUN, 'status', 'lease_until_ms', 'attempt')
if run[1] ~= 'running' then return {'refused'} end
if how == 'lost' then
  if tonumber(run[2]) > NOW then return {'refused'} end
  if tonumber(run[3]) + 1 >= tonumber(ARGV[6]) then return {'exhausted'} end
  redis.call('HINCRBY', RUN, 'attempt', 1)
  redis.call('HINCRBY', TASK, 'attempt', 1)
end
if redis.call('HGET', RUN, 'kind') == 'grade' then
  move(TASK, 'give back', 'running', 'grading')
else
  move(TASK, 'give back', 'pending', 'queued')
  count_work(run[2])
end
if ARGV[8] ~= '' then redis.call('HSET', TASK, 'usage', ARGV[8]) end
redis.call('HINCRBY', TASK, 'epoch', 1)
redis.call('HSET', TASK, 'token', '')
redis.call('HSET', RUN, 'status', 'pending', 'token', '', 'lease_until_ms', '0', 'rings', '0')
unhold(task_id, run_id)
redis.call('ZADD', RING_AT, NOW + tonumber(ARGV[7]), member(task_id, run_id))
for i = 9, #ARGV, 2 do emit(EVENTS, ARGV[i], run_id, ARGV[i + 1]) end
emit(EVENTS, how == 'lost' and 'run.lost' or 'run.given_back', run_id, '{}')
return {'released'}
