-- End a task whose question nobody answered in time, and tell its parent. Where follow-ups wait, the task goes on with
-- the next one instead. A repeated call gets the same reply.
-- KEYS  after the family: 30 until when answers may come  31 the task's follow-ups  32 deliveries that are due
--       33 the delivery of this end
-- ARGV  task_id  run_id (the run that asked)  error_type  error_message  event_data  note (for the parent)
--       wake_id (for a run of the parent)  ring_again_ms  next_id (for a run of the task)
--       of the webhook's delivery ('' = there is none): told_by (the run by which the end is told)  delivery_id  told
-- Returns {'expired', what the bell of the parent's wake needs, what the bell of the next run needs}, or {'refused'}: it
--         was answered, or ended
local task_id, run_id, error_type, error_message, event_data, note, wake_id, ring_again_ms, next_id, told_by,
  delivery_id, told = unpack(ARGV, 1, 12)
local ANSWER_UNTIL, FOLLOW_UPS, DUE, DELIVERY = KEYS[30], KEYS[31], KEYS[32], KEYS[33]
local task = redis.call('HMGET', TASK, 'status', 'phase', 'expired_by')
if task[3] == wake_id then
  return {'expired', HAS_PARENT and bell(PARENT, WAKE_RUN) or {}, bell(TASK, NEXT_RUN)}
end
local until_ms = redis.call('ZSCORE', ANSWER_UNTIL, member(task_id, run_id))
if not until_ms or tonumber(until_ms) > NOW then return {'refused'} end
redis.call('ZREM', ANSWER_UNTIL, member(task_id, run_id))
if not MOVES.expire[task[1] .. '/' .. task[2] .. '>timeout/'] or redis.call('LINDEX', RUNS, -1) ~= run_id then
  return {'refused'}
end
if redis.call('EXISTS', FOLLOW_UPS) == 1 then
  redis.call('HSET', TASK, 'expired_by', wake_id)
  emit(EVENTS, 'run.ended', run_id, event_data)
  return {'expired', {}, next_follow_up(FOLLOW_UPS, '', next_id, ring_again_ms)}
end
move(TASK, 'expire', 'timeout', '')
redis.call('HSET', TASK, 'asks', '', 'error_type', error_type, 'error_message', error_message, 'expired_by', wake_id)
redis.call('HDEL', LARGE, 'interrupts')
emit(EVENTS, 'task.settled', run_id, event_data)
leave_parent(task_id)
deliver(DUE, DELIVERY, told_by, delivery_id, told)
return {'expired', tell_parent(task_id, note, false, wake_id, ring_again_ms), {}}
