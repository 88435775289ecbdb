-- Write the task of an external parent: it has no runs, only an inbox and children. The same id again changes nothing.
-- KEYS  18 all tasks  19 the agent's tasks  20 roots of all trees  21 what is left of a task with this id
-- ARGV  task_id  event data, then field, value, … of the task
-- Returns {'registered'}, {'exists'}, {'worker'} where the task of this id runs in workers, or {'remains'} while an
--         old task of this id is being removed
local home = redis.call('HGET', TASK, 'home')
if home then
  if home ~= 'external' then return {'worker'} end
  redis.call('HSET', TASK, 'updated_ms', int(NOW))
  return {'exists'}
end
if redis.call('EXISTS', KEYS[21]) == 1 then return {'remains'} end
redis.call('HSET', TASK, 'status', 'idle', 'phase', '', 'run_id', '', 'epoch', '0', 'token', '',
  'created_ms', int(NOW), 'updated_ms', int(NOW), unpack(ARGV, 3))
for _, index in ipairs({index_of('idle'), KEYS[18], KEYS[19], KEYS[20]}) do redis.call('ZADD', index, NOW, ARGV[1]) end
emit(EVENTS, 'task.registered', '', ARGV[2])
return {'registered'}
