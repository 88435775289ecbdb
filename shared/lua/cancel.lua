-- End a task now, whatever it does: the epoch rises first, so that what its code still writes is refused. Its
-- follow-ups are dropped. Unless its children are kept, its cut rises too, even if the task itself had ended: from then
-- on no descendant is submitted, claimed or settled, and the task is listed as one to close until the caller has closed
-- its descendants. A repeated call gets the same reply.
-- KEYS  after the family: 30 the task's follow-ups  31 control channel  32 the task's children
--       33 tasks whose descendants are to be closed  34 deliveries that are due
--       35 the delivery of this end  36 … ancestors, root first  last: the tree's snapshots
-- ARGV  task_id  run_id (the active run that the caller saw, '' = none)  event_data  keep_children ('1' | '0')
--       note (for the parent)  quietly ('1': tell the parent only where it rests)  wake_id (for a run of the parent)
--       ring_again_ms  only_cut ('1': leave the task alone unless an ancestor was cancelled with its children)
--       of the webhook's delivery ('' = there is none): told_by (the run by which the end is told)  delivery_id  told
-- Returns {'cancelled', status before, has_children, what the bell of the parent's wake needs, follow-ups dropped},
--         {'already_finished', status, has_children}, {'left', status, has_children}, {'moved'} where another run is
--         active by now, or {'unknown'}; has_children is 1 or 0
local task_id, run_id, event_data, keep_children, note, quietly, wake_id, ring_again_ms, only_cut, told_by,
  delivery_id, told = unpack(ARGV, 1, 12)
local FOLLOW_UPS, CONTROL, CHILDREN, CLOSING, DUE, DELIVERY = KEYS[30], KEYS[31], KEYS[32], KEYS[33], KEYS[34], KEYS[35]
local task = redis.call('HMGET', TASK, 'status', 'run_id', 'phase', 'cancelled_by', 'dropped', 'follow_ups')
if not task[1] then return {'unknown'} end
local has_children = redis.call('EXISTS', CHILDREN)
if task[4] == wake_id then
  return {'cancelled', task[1], has_children, HAS_PARENT and bell(PARENT, WAKE_RUN) or {}, task[5]}
end
if only_cut == '1' and not is_cut(TASK, 36) then return {'left', task[1], has_children} end
if task[2] ~= run_id then return {'moved'} end
local ended = not MOVES.cancel[task[1] .. '/' .. task[3] .. '>cancelled/']
-- With only_cut, what is below this task was cut by the same ancestor: this task's own cut does not rise.
if keep_children ~= '1' and only_cut ~= '1' then
  if has_children == 1 or not ended then redis.call('HINCRBY', TASK, 'cut', 1) end
  if has_children == 1 then redis.call('ZADD', CLOSING, NOW, task_id) end
end
if ended then return {'already_finished', task[1], has_children} end
move(TASK, 'cancel', 'cancelled', '')
redis.call('HINCRBY', TASK, 'epoch', 1)
local dropped = task[6] or '0'
redis.call('DEL', FOLLOW_UPS)
redis.call('HSET', TASK, 'token', '', 'run_id', '', 'cancelled_by', wake_id, 'follow_ups', '0', 'dropped', dropped)
redis.call('HDEL', TASK, 'grading_run_id')
redis.call('HDEL', LARGE, 'interrupts')
local running = false
if run_id ~= '' then
  running = redis.call('HGET', RUN, 'status') == 'running'
  redis.call('HSET', RUN, 'status', 'cancelled', 'ended_as', 'cancelled', 'ended_ms', int(NOW), 'lease_until_ms', '0')
  use_up_input(run_id)
  -- A running one keeps its lease until its code has ended, or its worker is gone.
  if not running then unhold(task_id, run_id) end
end
if running then redis.call('PUBLISH', CONTROL, run_id) else redis.call('HSET', TASK, 'stopped_ms', int(NOW)) end
emit(EVENTS, 'task.cancelled', run_id, event_data)
deliver(DUE, DELIVERY, told_by, delivery_id, told)
leave_parent(task_id)
return {'cancelled', task[1], has_children, tell_parent(task_id, note, quietly == '1', wake_id, ring_again_ms), dropped}
