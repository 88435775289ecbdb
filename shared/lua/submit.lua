-- Write a task and its first run. The same ids again change nothing, so a repeated call is safe.
-- KEYS  after the family: 30 all tasks  31 the agent's tasks  32 idempotency key (the task's own key where there is none)
--       33 the parent's children, or the roots of all trees  34 … ancestors, root first  last: the tree's snapshots
-- ARGV  task_id  run_id  payload (its hash, '' = no idempotency key)  ring_again_ms  input  event_data
--       notify_parent ('1' | '0')  by_run  by_epoch  by_token (the claim of the parent's run that submits, '' = none does)
--       context  configurable  rubric ('' = none)  request (what a grader is told that was asked for, '' = nothing)
--       max_pending  max_open, max_depth, max_descendants (where the record has none)
--       then number of task fields, field, value, … of the task; number of run fields, field, value, … of the run;
--       name, item, … of the snapshot that the run begins with
-- Returns {'created' | 'exists', task_id, run_id}, {'conflict', task_id}, or {'refused', why, limit}
local task_id, run_id, payload, ring_again_ms, input, event_data, notify_parent, by_run, by_epoch, by_token, context,
  configurable, rubric, request, max_pending, max_open, max_depth, max_descendants = unpack(ARGV, 1, 18)
local TASKS, AGENT_TASKS, ONCE, SIBLINGS = KEYS[30], KEYS[31], KEYS[32], KEYS[33]
if by_run ~= '' and not holds(PARENT, by_run, by_epoch, by_token) then return {'refused', 'stale'} end
if payload ~= '' then
  local used = redis.call('HMGET', ONCE, 'task_id', 'run_id', 'payload')
  if used[1] then
    if used[3] ~= payload then return {'conflict', used[1]} end
    return {'exists', used[1], used[2]}
  end
end
if redis.call('EXISTS', TASK) == 1 then return {'exists', task_id, run_id} end
-- Only a new submit is refused from here on: a repeated one has had its reply above.
local function most(task, name, default) return tonumber(redis.call('HGET', task, name) or '') or tonumber(default) end
if redis.call('ZCARD', index_of('pending')) >= tonumber(max_pending) then return {'refused', 'pending', max_pending} end
if HAS_PARENT then
  local status = redis.call('HGET', PARENT, 'status')
  if not status then return {'refused', 'unknown'} end
  if status == 'cancelled' then return {'refused', 'cancelled'} end
  if is_cut(PARENT, 34) then return {'refused', 'cut'} end
  local ROOT = KEYS[34]
  local children, open = most(PARENT, 'max_children'), most(PARENT, 'max_open_children', max_open)
  local depth, descendants = most(ROOT, 'max_depth', max_depth), most(ROOT, 'max_descendants', max_descendants)
  local _, above = string.gsub(redis.call('HGET', PARENT, 'ancestors') or '', '%S+', '')
  if children and redis.call('ZCARD', SIBLINGS) >= children then return {'refused', 'full', int(children)} end
  if notify_parent == '1' and redis.call('SCARD', PARENT_OPEN) >= open then return {'refused', 'open', int(open)} end
  if above >= depth then return {'refused', 'depth', int(depth)} end
  if most(ROOT, 'descendants', 0) >= descendants then return {'refused', 'descendants', int(descendants)} end
end
local function counted(at)
  local fields = {}
  for i = at + 1, at + tonumber(ARGV[at]) do fields[#fields + 1] = ARGV[i] end
  return fields, at + 1 + #fields
end
local task, at = counted(19)
local run, rest = counted(at)
redis.call('HSET', TASK, 'status', 'pending', 'phase', 'queued', 'run_id', run_id, 'epoch', '0', 'token', '',
  'created_ms', int(NOW), 'updated_ms', int(NOW), unpack(task))
redis.call('HSET', RUN, 'status', 'pending', 'attempt', '0', 'created_ms', int(NOW), unpack(run))
redis.call('SET', INPUT, input)
if context ~= '' then redis.call('HSET', LARGE, 'context', context) end
if configurable ~= '' then redis.call('HSET', LARGE, 'configurable', configurable) end
if rubric ~= '' then redis.call('HSET', LARGE, 'rubric', rubric) end
if request ~= '' then redis.call('HSET', LARGE, 'request', request) end
if rest <= #ARGV then redis.call('HINCRBY', KEYS[#KEYS], 'runs', 1) end
for i = rest, #ARGV, 2 do redis.call('HSETNX', KEYS[#KEYS], ARGV[i], ARGV[i + 1]) end
redis.call('RPUSH', RUNS, run_id)
redis.call('ZADD', index_of('pending'), NOW, task_id)
redis.call('ZADD', TASKS, NOW, task_id)
redis.call('ZADD', AGENT_TASKS, NOW, task_id)
redis.call('ZADD', SIBLINGS, NOW, task_id)
redis.call('ZADD', RING_AT, NOW + tonumber(ring_again_ms), member(task_id, run_id))
if payload ~= '' then redis.call('HSET', ONCE, 'task_id', task_id, 'run_id', run_id, 'payload', payload) end
if HAS_PARENT then
  redis.call('HINCRBY', KEYS[34], 'descendants', 1)
  if notify_parent == '1' then redis.call('SADD', PARENT_OPEN, task_id) end
  take_place(TASK, 34)
end
emit(EVENTS, 'task.submitted', run_id, event_data)
return {'created', task_id, run_id}
