-- End a run, and decide what becomes of its task: it ends, asks a person, is graded, goes on with its next follow-up,
-- or rests, where the run ended well while children are open or news is there. A grade run ends the task or sends its
-- work back to the agent. A repeated call gets the same reply.
-- KEYS  after the family: 30 until when answers may come  31 the task's follow-ups  32 deliveries that are due
--       33 the delivery of this end  34 … ancestors, root first  last: the tree's snapshots
-- ARGV  task_id  run_id  epoch  token  only_expired ('1': refuse while the lease is good)  run_status  ended_as
--       status and phase (of the task)  result ('' = leave)  error_type  error_message  usage ('' = leave)  interrupts
--       asked (their ids)  note (for the parent, '' = none)  next_id (for a run of the task)  wake_id (for a run of the
--       parent)  ring_again_ms  grade ('' = none)  revision (input of the run that revises, '' = none)
--       of the webhook's delivery ('' = there is none): told_by (the run by which the end is told)  delivery_id  told
--       then type, data, … of the events that go before, then the type and data of the last event
-- Returns {'settled', what the bell of the next run needs, what the bell of the parent's wake needs}, {'refused'}, or
--         {'cut'} where an ancestor was cancelled with its children
local task_id, run_id, epoch, token, only_expired, run_status, ended_as, status, phase, result, error_type,
  error_message, usage, interrupts, asked, note, next_id, wake_id, ring_again_ms, grade, revision, told_by,
  delivery_id, told = unpack(ARGV, 1, 24)
local LAST_EVENT, LAST_DATA = ARGV[#ARGV - 1], ARGV[#ARGV]
local ANSWER_UNTIL, FOLLOW_UPS, DUE, DELIVERY = KEYS[30], KEYS[31], KEYS[32], KEYS[33]
local run = redis.call('HMGET', RUN, 'status', 'epoch', 'token', 'lease_until_ms', 'kind', 'queue')
local grades = run[5] == 'grade'

if run[1] == run_status and run[1] ~= 'running' and run[2] == epoch and run[3] == token then
  return {'settled', bell(TASK, NEXT_RUN), HAS_PARENT and bell(PARENT, WAKE_RUN) or {}}
end
if not holds(TASK, run_id, epoch, token) then return {'refused'} end
if only_expired == '1' and tonumber(run[4]) > NOW then return {'refused'} end
if is_cut(TASK, 34) then return {'cut'} end

local grade_queue = redis.call('HGET', TASK, 'grade_queue') or ''

-- What becomes of the task. News may have come while its work was graded: then the task is not done after all.
local function decide()
  if phase == 'asking' then return 'asks' end
  if phase == 'queued' then return 'is revised' end
  local is_half = status == 'success' and (redis.call('SCARD', OPEN) > 0 or has_news(TASK))
  if status == 'success' and not is_half and not grades and grade_queue ~= '' then return 'is graded' end
  if redis.call('EXISTS', FOLLOW_UPS) == 1 then return 'goes on' end
  return is_half and 'rests' or 'ends'
end

local it = decide()
local is_told = it == 'ends' or it == 'asks'

local function move_task()
  if it == 'rests' then
    move(TASK, 'rest', 'running', 'resting')
  elseif it == 'is graded' then
    move(TASK, 'grade', 'running', 'grading')
  elseif it ~= 'goes on' then
    move(TASK, it == 'ends' and 'finish' or it == 'is revised' and 'revise' or 'pause', status, phase)
  end
end

local function end_run()
  redis.call('HSET', RUN, 'status', run_status, 'ended_as', it == 'rests' and not grades and 'rested' or ended_as,
    'ended_ms', int(NOW), 'lease_until_ms', '0', 'error_type', error_type, 'error_message', error_message)
  if grade ~= '' then redis.call('HSET', RUN, 'grade', grade) end
  use_up_input(run_id, grades or run_status == 'success')
  unhold(task_id, run_id)
end

-- What the task keeps of the run; not the error of a grader, which is no fault of the task.
local function keep()
  redis.call('HSET', TASK, 'run_id', '', 'token', '', 'stopped_ms', int(NOW), 'asked', asked, 'asks', asked,
    'error_type', grades and '' or error_type, 'error_message', grades and '' or error_message)
  if not grades then count_work(run[4]) end
  if grade ~= '' then redis.call('HSET', TASK, 'grade', grade) end
  if usage ~= '' then redis.call('HSET', TASK, 'usage', usage) end
  if result ~= '' and it ~= 'rests' then redis.call('HSET', LARGE, 'result', result) end
  if interrupts ~= '' then redis.call('HSET', LARGE, 'interrupts', interrupts) else redis.call('HDEL', LARGE, 'interrupts') end
  -- Notifications that are in the saved state go; the rest is for the next run.
  redis.call('XTRIM', INBOX, 'MINID', int((tonumber(redis.call('HGET', TASK, 'cursor')) or 0) + 1) .. '-0')
end

local function emit_all()
  for i = 25, #ARGV - 2, 2 do emit(EVENTS, ARGV[i], run_id, ARGV[i + 1]) end
  if it == 'rests' then
    emit(EVENTS, 'task.resting', run_id, '{}')
  elseif it == 'goes on' then
    emit(EVENTS, 'run.ended', run_id, LAST_DATA)
  elseif is_told then
    emit(EVENTS, LAST_EVENT, run_id, LAST_DATA)
  end
end

-- Note until when a person may answer, if the task has such a bound.
local function ask()
  local within = tonumber(redis.call('HGET', TASK, 'answer_within_ms'))
  local until_ms = within and int(NOW + within) or ''
  redis.call('HSET', TASK, 'answer_queue', run[6], 'answer_until_ms', until_ms)
  if within then redis.call('ZADD', ANSWER_UNTIL, until_ms, member(task_id, run_id)) end
end

-- Start the task's next run, if there is one. Returns what its bell needs, or {}.
local function start_next()
  if it == 'goes on' then return next_follow_up(FOLLOW_UPS, run_id, next_id, ring_again_ms) end
  if it == 'is graded' then
    redis.call('HSETNX', TASK, 'grading_run_id', next_id)
    redis.call('HSET', NEXT_RUN, 'of_run', run_id)
    return begin(TASK, EVENTS, RUNS, NEXT_RUN, NEXT_INPUT, next_id, 'grade', grade_queue, '{}', 'task.grading', '{}',
      ring_again_ms)
  end
  if it == 'is revised' then
    return begin(TASK, EVENTS, RUNS, NEXT_RUN, NEXT_INPUT, next_id, 'agent', redis.call('HGET', TASK, 'work_queue'),
      revision, 'task.revising', '{}', ring_again_ms)
  end
  if has_news(TASK) and at_rest(TASK) then
    return wake(TASK, PARENT_OPEN, EVENTS, RUNS, NEXT_RUN, NEXT_INPUT, next_id, ring_again_ms)
  end
  return {}
end

move_task()
end_run()
keep()
emit_all()
if it == 'asks' then ask() end
if it == 'ends' then
  redis.call('HDEL', TASK, 'grading_run_id')
  leave_parent(task_id)
end
local parents_bell = is_told and tell_parent(task_id, note, false, wake_id, ring_again_ms) or {}
local next_bell = start_next()
if it == 'ends' and #next_bell == 0 then deliver(DUE, DELIVERY, told_by, delivery_id, told) end
return {'settled', next_bell, parents_bell}
