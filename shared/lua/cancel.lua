-- End a task now, whatever it does: the epoch rises first, so that what its code still writes is refused.
-- KEYS  18 control channel
-- ARGV  task_id  run_id (the active run that the caller saw, '' = none)  event data
-- Returns {'cancelled', status before}, {'already_finished', status}, {'moved'} where another run is active by now,
--         or {'unknown'}
local task_id, run_id = ARGV[1], ARGV[2]
local task = redis.call('HMGET', TASK, 'status', 'run_id')
if not task[1] then return {'unknown'} end
if task[2] ~= run_id then return {'moved'} end
if not MOVES[task[1] .. '/' .. redis.call('HGET', TASK, 'phase') .. '>cancelled/'] then return {'already_finished', task[1]} end
local refused = move('cancelled', '')
if refused then return refused end
redis.call('HINCRBY', TASK, 'epoch', 1)
redis.call('HINCRBY', TASK, 'cut', 1)
redis.call('HSET', TASK, 'token', '', 'run_id', '', 'interrupts', '')
if run_id ~= '' then
  local running = redis.call('HGET', RUN, 'status') == 'running'
  redis.call('HSET', RUN, 'status', 'cancelled', 'ended_as', 'cancelled', 'ended_ms', int(NOW), 'lease_until_ms', '0')
  redis.call('DEL', INPUT)
  unhold(task_id, run_id)
  if running then
    redis.call('PUBLISH', KEYS[18], run_id)
  else
    redis.call('HSET', TASK, 'stopped_ms', int(NOW))
  end
else
  redis.call('HSET', TASK, 'stopped_ms', int(NOW))
end
emit('task.cancelled', run_id, ARGV[3])
return {'cancelled', task[1]}
