-- Give a task one more message: a run with it starts now, or when the task is done with its active run. A repeated call
-- gets the same reply.
-- KEYS  after the family: 30 the task's follow-ups  31 control channel  32 … ancestors, root first
--       last: the tree's snapshots
--       RUN is the task's last run, also where it has ended
-- ARGV  task_id  last_run ('' = none)  seen (the status/phase that the caller saw)  how: 'start' (no run is active),
--       'interrupt' (one is, and is stopped), 'enqueue', or 'refuse'  input (what the run is given)  update_id
--       ring_again_ms  run_id (for the new run)
--       by (which ancestor's run updates: 1 = root, '' = none does)  by_run, by_epoch, by_token (its claim)
--       rubric ('' = leave)  grade_queue ('' = none)
--       keyed (whether the id is the caller's own key: '1': it is known as long as the task is; '0': for the next updates)
-- Returns {'started', its run, what its bell needs, questions dropped, run overtaken}, {'queued'}, {'active'} where
--         nothing else was asked for, {'moved'} where the task stands otherwise by now, {'stale'} where the run that
--         updates has lost its claim, or {'unknown'}
local task_id, last_run, seen, how, input, update_id, ring_again_ms, run_id, by, by_run, by_epoch, by_token, rubric,
  grade_queue, keyed = unpack(ARGV, 1, 15)
local FOLLOW_UPS, CONTROL = KEYS[30], KEYS[31]
local KEPT = 32 -- updates that are remembered: whoever lost a reply asks again at once

-- If this update came before: the run that it started ('' where it waits).
local function came_before()
  if keyed == '1' then return redis.call('HGET', LARGE, 'update:' .. update_id) end
  for id, run in string.gmatch(redis.call('HGET', LARGE, 'updates') or '', '(%S+)=(%S*)') do
    if id == update_id then return run end
  end
end

local function note(run)
  if keyed == '1' then return redis.call('HSET', LARGE, 'update:' .. update_id, run) end
  local noted = {update_id .. '=' .. run}
  for one in string.gmatch(redis.call('HGET', LARGE, 'updates') or '', '%S+') do
    if #noted < KEPT then noted[#noted + 1] = one end
  end
  redis.call('HSET', LARGE, 'updates', table.concat(noted, ' '))
end

local task = redis.call('HMGET', TASK, 'status', 'phase')
if not task[1] then return {'unknown'} end
if by ~= '' and not holds(KEYS[31 + by], by_run, by_epoch, by_token) then return {'stale'} end
local made = came_before()
if made == '' then return {'queued'} end
if made then
  local answer = redis.call('HMGET', LARGE, 'dropped_for', 'dropped', 'overtaken')
  local known = answer[1] == made
  return {'started', made, bell(TASK, NEXT_RUN), known and answer[2] or '', known and answer[3] or ''}
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
  note('')
  emit(EVENTS, 'task.follow_up', '', '{}')
  return {'queued'}
end
-- The next run counts on from the usage that is noted now; what the last run's code still uses is added later
-- (stopped.lua).
local last = redis.call('HMGET', RUN, 'status', 'stopped_ms')
if (last[1] == 'running' or last[1] == 'cancelled') and not last[2] then
  redis.call('HSET', RUN, 'usage_noted', redis.call('HGET', TASK, 'usage') or '{}')
end
local overtaken = how == 'interrupt' and last_run or ''
if overtaken ~= '' then
  redis.call('HINCRBY', TASK, 'epoch', 1)
  -- A running one keeps its lease until its code has ended, or its worker is gone.
  if last[1] == 'running' then
    redis.call('PUBLISH', CONTROL, last_run)
  else
    unhold(task_id, last_run)
  end
  redis.call('HSET', RUN, 'status', 'cancelled', 'ended_as', 'overtaken', 'ended_ms', int(NOW), 'lease_until_ms', '0')
end
if overtaken == '' then grade_anew(TASK) end
local dropped = redis.call('HGET', LARGE, 'interrupts') or ''
redis.call('HSET', LARGE, 'dropped_for', run_id, 'dropped', dropped, 'overtaken', overtaken)
note(run_id)
take_place(TASK, 32)
return {'started', run_id, follow_up(last_run, run_id, input, ring_again_ms), dropped, overtaken}
