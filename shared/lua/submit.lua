-- Write a task and its first run. The same ids again change nothing, so a repeated call is safe.
-- KEYS  18 all tasks  19 the agent's tasks  20 idempotency key (the task's own key where there is none)
-- ARGV  task_id  run_id  payload_hash ('' = no idempotency key)  ring_again_ms  input  event data
--       number of task fields, then field, value, … of the task; the rest is field, value, … of the run
-- Returns {'created' | 'exists', task_id, run_id} or {'conflict', task_id}
local task_id, run_id, payload = ARGV[1], ARGV[2], ARGV[3]
if payload ~= '' then
  local used = redis.call('HMGET', KEYS[20], 'task_id', 'run_id', 'payload')
  if used[1] then
    if used[3] ~= payload then return {'conflict', used[1]} end
    return {'exists', used[1], used[2]}
  end
end
if redis.call('EXISTS', TASK) == 1 then
  return {'exists', task_id, run_id}
end
local fields = tonumber(ARGV[7])
local task, run = {}, {}
for i = 8, 7 + fields do task[#task + 1] = ARGV[i] end
for i = 8 + fields, #ARGV do run[#run + 1] = ARGV[i] end
redis.call('HSET', TASK, 'status', 'pending', 'phase', 'queued', 'run_id', run_id, 'epoch', '0', 'token', '',
  'created_ms', int(NOW), 'updated_ms', int(NOW), unpack(task))
redis.call('HSET', RUN, 'status', 'pending', 'attempt', '0', 'created_ms', int(NOW), unpack(run))
redis.call('SET', INPUT, ARGV[5])
redis.call('RPUSH', RUNS, run_id)
redis.call('ZADD', index_of('pending'), NOW, task_id)
redis.call('ZADD', KEYS[18], NOW, task_id)
redis.call('ZADD', KEYS[19], NOW, task_id)
redis.call('ZADD', RING_AT, NOW + tonumber(ARGV[4]), member(task_id, run_id))
if payload ~= '' then redis.call('HSET', KEYS[20], 'task_id', task_id, 'run_id', run_id, 'payload', payload) end
emit('task.submitted', run_id, ARGV[6])
return {'created', task_id, run_id}
