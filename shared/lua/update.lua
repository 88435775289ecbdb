-- Give a task a message, on the conversation that it has: a new run with it starts now, or when the active one has ended.
-- A repeated call gets the same answer.
-- KEYS  after the family: 30 the task's follow-ups  31 control channel  32 … ancestors, root first
--       last: the tree's snapshots
--       RUN is the task's last run, also where it has ended
-- ARGV  task_id  id of the last run ('' = none)  status/phase that the caller saw  how: 'start' (no run is active),
--       'interrupt' (one is, and is stopped), 'enqueue', or 'refuse'  what the run is given  id of this update
--       ring_again_ms  id for the new run
--       which ancestor's run updates (1 = root, '' = none does), its run_id, epoch, token
--       rubric ('' = leave)  queue of the task's grade runs ('' = none)
-- Returns {'started', its run, what its bell needs, questions dropped, run overtaken}, {'queued'}, {'active'} where
--         nothing else was asked for, {'moved'} where the task stands otherwise by now, {'stale'} where the run that
--         updates has lost its claim, or {'unknown'}
local task_id, last_run, seen, how, input, update_id, ring_again_ms, run_id, by, by_run, by_epoch, by_token, rubric,
  grade_queue = unpack(ARGV, 1, 14)
local FOLLOW_UPS, CONTROL = KEYS[30], KEYS[31]
local mark = 'update:' .. update_id
local task = redis.call('HMGET', TASK, 'status', 'phase', mark, 'run_id')
if not task[1] then return {'unknown'} end
if by ~= '' and not holds(KEYS[31 + by], by_run, by_epoch, by_token) then return {'stale'} end
if task[3] == '' then return {'queued'} end
if task[3] then
  local answer = redis.call('HMGET', LARGE, 'dropped', 'overtaken')
  return {'started', task[3], bell(TASK, NEXT_RUN), answer[1] or '', answer[2] or ''}
end
if task[1] .. '/' .. task[2] ~= seen or (redis.call('LINDEX', RUNS, -1) or '') ~= last_run then return {'moved'} end
if how == 'refuse' then return {'active'} end
if rubric ~= '' then
  redis.call('HSET', LARGE, 'rubric', rubric)
  redis.call('HSET', TASK, 'grade_queue', grade_queue)
  grade_anew(TASK)
end
if how == 'enqueue' then
  redis.call('RPUSH', FOLLOW_UPS, input)
  redis.call('HINCRBY', TASK, 'follow_ups', 1)
  redis.call('HSET', TASK, mark, '')
  emit(EVENTS, 'task.follow_up', '', '{}')
  return {'queued'}
end
local overtaken = how == 'interrupt' and last_run or ''
if overtaken ~= '' then
  redis.call('HINCRBY', TASK, 'epoch', 1)
  -- The lease of a running one stays until its code has ended, or its worker is not heard of any more.
  if redis.call('HGET', RUN, 'status') == 'running' then
    redis.call('PUBLISH', CONTROL, last_run)
  else
    unhold(task_id, last_run)
  end
  redis.call('HSET', RUN, 'status', 'cancelled', 'ended_as', 'overtaken', 'ended_ms', int(NOW), 'lease_until_ms', '0')
end
if overtaken == '' then grade_anew(TASK) end
local dropped = redis.call('HGET', LARGE, 'interrupts') or ''
redis.call('HSET', LARGE, 'dropped', dropped, 'overtaken', overtaken)
redis.call('HSET', TASK, mark, run_id)
take_place(TASK, 32)
return {'started', run_id, follow_up(last_run, run_id, input, ring_again_ms), dropped, overtaken}
