-- What a transition needs that concerns a task's parent and its children; stands between the prelude and the script.
-- KEYS  18 the task's open children  19 its next run  20 that run's input  21 its inbox
--       22 parent  23 parent's inbox  24 parent's events  25 parent's runs  26 parent's open children
--       27 parent's wake run  28 that run's input  29 the open children of the parent's own parent
--       A task without a parent has its own key at 22 to 29, a parent without one its own key at 29.
local OPEN, NEXT_RUN, NEXT_INPUT, INBOX = KEYS[18], KEYS[19], KEYS[20], KEYS[21]
local PARENT, PARENT_INBOX, PARENT_EVENTS, PARENT_RUNS, PARENT_OPEN = KEYS[22], KEYS[23], KEYS[24], KEYS[25], KEYS[26]
local WAKE_RUN, WAKE_INPUT, GRAND_OPEN = KEYS[27], KEYS[28], KEYS[29]
local HAS_PARENT = PARENT ~= TASK

local function has_news(task)
  local inbox = redis.call('HMGET', task, 'seq', 'given')
  return (tonumber(inbox[1]) or 0) > (tonumber(inbox[2]) or 0)
end

-- Whether a task may be woken: the table has the move, no run is active, and it has runs at all (external parents do
-- not).
local function at_rest(task)
  local now = redis.call('HMGET', task, 'status', 'phase', 'run_id', 'home')
  return now[3] == '' and now[4] == 'worker' and MOVES.wake[now[1] .. '/' .. now[2] .. '>pending/queued']
end

-- What the bell of a pending run needs; {} where there is no such run.
local function bell(task, run)
  local pending = redis.call('HMGET', run, 'status', 'task_id', 'run_id', 'queue', 'kind')
  if pending[1] ~= 'pending' then return {} end
  local facts = redis.call('HMGET', task, 'agent', 'title')
  return {pending[2], pending[3], pending[4], facts[1], facts[2], pending[5]}
end

-- Count what limits bound from zero again: at an update or a wake, as at the submit. A run that is given back, retried,
-- lost, answered or revised goes on counting.
local function begin_counting(task)
  redis.call('HSET', task, 'usage_before', redis.call('HGET', task, 'usage') or '', 'working_ms', '0')
end

-- Start a run of a task that was moved to `pending`, with what it is given. Returns what its bell needs.
local function begin(task, events, runs, run, input, run_id, kind, queue, given, event, data, ring_again_ms)
  local task_id = redis.call('HGET', task, 'task_id')
  redis.call('HSET', run, 'run_id', run_id, 'task_id', task_id, 'kind', kind, 'status', 'pending', 'attempt', '0',
    'queue', queue, 'created_ms', int(NOW))
  redis.call('SET', input, given)
  redis.call('RPUSH', runs, run_id)
  redis.call('HSET', task, 'run_id', run_id, 'attempt', '0', 'error_type', '', 'error_message', '')
  redis.call('ZADD', RING_AT, NOW + tonumber(ring_again_ms), member(task_id, run_id))
  emit(events, event, run_id, data)
  return bell(task, run)
end

-- Let the next grading begin anew, from iteration 0: the task goes on, and will not end with the work that was graded.
-- For updates that overtake no run, and for the wake of a task that had ended.
local function grade_anew(task) redis.call('HDEL', task, 'grade', 'grading_run_id') end

-- Start a run for the news in a task's inbox. A task that had ended counts again among the open children of its own
-- parent, which are at `siblings`. Returns what the bell needs.
local function wake(task, siblings, events, runs, run, input, run_id, ring_again_ms)
  local facts = redis.call('HMGET', task, 'task_id', 'wake_queue', 'parent_id', 'notify_parent', 'status')
  if facts[5] ~= 'running' then grade_anew(task) end
  move(task, 'wake', 'pending', 'queued')
  begin_counting(task)
  if facts[3] ~= '' and facts[4] ~= '0' then redis.call('SADD', siblings, facts[1]) end
  return begin(task, events, runs, run, input, run_id, 'agent', facts[2], '{}', 'task.woken', '{}', ring_again_ms)
end

-- Start the task's next run with a message to it. Its questions are dropped, and a task that had ended counts again
-- among the open children of its parent. Returns what the bell needs.
local function follow_up(last_run, run_id, given, ring_again_ms)
  local facts = redis.call('HMGET', TASK, 'task_id', 'work_queue', 'notify_parent', 'wake_queue')
  if last_run ~= '' then use_up_input(last_run) end
  redis.call('HDEL', LARGE, 'interrupts')
  move(TASK, 'update', 'pending', 'queued')
  begin_counting(TASK)
  if HAS_PARENT and facts[3] ~= '0' then redis.call('SADD', PARENT_OPEN, facts[1]) end
  redis.call('HSET', TASK, 'token', '', 'asks', '', 'waits_for', '')
  return begin(TASK, EVENTS, RUNS, NEXT_RUN, NEXT_INPUT, run_id, 'agent', facts[2] or facts[4], given, 'task.updated',
    '{}', ring_again_ms)
end

-- Start the task's next run with the first of its waiting messages. Returns what the bell needs.
local function next_follow_up(follow_ups, last_run, run_id, ring_again_ms)
  grade_anew(TASK)
  redis.call('HINCRBY', TASK, 'follow_ups', -1)
  return follow_up(last_run, run_id, redis.call('LPOP', follow_ups), ring_again_ms)
end

-- The task has ended, and none of its runs is queued: queue what its webhook is told ('' = it has no webhook).
local function deliver(due, delivery, run_id, id, facts)
  if facts == '' then return end
  redis.call('HSET', delivery, 'id', id, 'status', 'pending', 'tries', '0', 'created_ms', int(NOW), 'facts', facts)
  redis.call('ZADD', due, NOW, member(redis.call('HGET', TASK, 'task_id'), run_id))
end

-- The task has ended: it is no open child of its parent any more.
local function leave_parent(task_id)
  if HAS_PARENT then redis.call('SREM', PARENT_OPEN, task_id) end
end

-- Tell the parent of the task, and wake it where it is at rest. Returns what the bell of the wake needs, or {}.
-- With `quietly` only a parent that rests is told: nothing else might ever wake it.
-- A parent that no longer exists is not told.
local function tell_parent(task_id, note, quietly, wake_id, ring_again_ms)
  if not HAS_PARENT then return {} end
  local parent = redis.call('HMGET', PARENT, 'status', 'phase')
  if not parent[1] or redis.call('HGET', TASK, 'notify_parent') == '0' then return {} end
  if quietly and not (parent[1] == 'running' and parent[2] == 'resting') then return {} end
  local seq = redis.call('HINCRBY', PARENT, 'seq', 1)
  redis.call('XADD', PARENT_INBOX, seq .. '-0', 'note', note, 'open', redis.call('SCARD', PARENT_OPEN))
  emit(PARENT_EVENTS, 'inbox.arrived', '', '{"task_id":"' .. task_id .. '"}')
  if not at_rest(PARENT) then return {} end
  return wake(PARENT, GRAND_OPEN, PARENT_EVENTS, PARENT_RUNS, WAKE_RUN, WAKE_INPUT, wake_id, ring_again_ms)
end
