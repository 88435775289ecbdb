-- Move a pending run to running and hand its facts to the worker. The first claim fixes the run's range of
-- notifications. The same token again gets the same answer, so a repeated call is safe.
-- ARGV  task_id  run_id  token  worker  lease_ms  event data
-- Returns {'claimed', epoch, input, fields of the task, fields of the run} or {'dropped', status of the run}
local task_id, run_id, token = ARGV[1], ARGV[2], ARGV[3]
local lease_until = NOW + tonumber(ARGV[5])
local run = redis.call('HMGET', RUN, 'status', 'token', 'inbox_to')
local active = redis.call('HGET', TASK, 'run_id')
if active ~= run_id or not run[1] then return {'dropped', run[1] or ''} end
if run[1] == 'running' and run[2] == token then
  return {'claimed', redis.call('HGET', TASK, 'epoch'), redis.call('GET', INPUT) or '', redis.call('HGETALL', TASK),
    redis.call('HGETALL', RUN)}
end
if run[1] ~= 'pending' then return {'dropped', run[1]} end
local refused = move('running', 'working')
if refused then return refused end
local epoch = int(redis.call('HINCRBY', TASK, 'epoch', 1))
redis.call('HSET', TASK, 'token', token)
redis.call('HSET', RUN, 'status', 'running', 'epoch', epoch, 'token', token, 'worker', ARGV[4], 'lease_until_ms', int(lease_until),
  'claimed_ms', int(NOW))
redis.call('HSETNX', RUN, 'started_ms', int(NOW))
if not run[3] then
  local inbox = redis.call('HMGET', TASK, 'cursor', 'seq')
  redis.call('HSET', RUN, 'inbox_from', int((tonumber(inbox[1]) or 0) + 1), 'inbox_to', inbox[2] or '0')
  redis.call('HSET', TASK, 'given', inbox[2] or '0')
end
redis.call('ZREM', RING_AT, member(task_id, run_id))
redis.call('ZADD', LEASES, lease_until, member(task_id, run_id))
redis.call('ZADD', SLOTS, lease_until, run_id)
emit('run.claimed', run_id, ARGV[6])
return {'claimed', epoch, redis.call('GET', INPUT) or '', redis.call('HGETALL', TASK), redis.call('HGETALL', RUN)}
