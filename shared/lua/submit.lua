-- Write a task and its first run. The same ids again change nothing, so a repeated call is safe.
-- KEYS  after the family: 30 all tasks  31 the agent's tasks  32 idempotency key (the task's own key where there is none)
--       33 the parent's children, or the roots of all trees  34 … ancestors, root first  last: the tree's snapshots
-- ARGV  task_id  run_id  payload_hash ('' = no idempotency key)  ring_again_ms  input  event data
--       notify_parent ('1' | '0')  run_id, epoch, token of the parent's run that submits ('' = none does)
--       context  configurable  rubric ('' = none)
--       max_pending, max_open_children, max_depth, max_descendants (the last three where the record has none)
--       number of task fields, then field, value, … of the task; number of run fields, then field, value, … of the run;
--       the rest is name, item, … of the snapshot that the run begins with
-- Returns {'created' | 'exists', task_id, run_id}, {'conflict', task_id}, or {'refused', why, limit}
local task_id, run_id, payload = ARGV[1], ARGV[2], ARGV[3]
if ARGV[8] ~= '' and not holds(PARENT, ARGV[8], ARGV[9], ARGV[10]) then return {'refused', 'stale'} end
if payload ~= '' then
  local used = redis.call('HMGET', KEYS[32], 'task_id', 'run_id', 'payload')
  if used[1] then
    if used[3] ~= payload then return {'conflict', used[1]} end
    return {'exists', used[1], used[2]}
  end
end
if redis.call('EXISTS', TASK) == 1 then return {'exists', task_id, run_id} end
-- What is refused from here on is a submit that is new: one that was taken before is answered as it was.
local function most(task, name, default) return tonumber(redis.call('HGET', task, name) or '') or tonumber(default) end
if redis.call('ZCARD', index_of('pending')) >= tonumber(ARGV[14]) then return {'refused', 'pending', ARGV[14]} end
if HAS_PARENT then
  local status = redis.call('HGET', PARENT, 'status')
  if not status then return {'refused', 'unknown'} end
  if status == 'cancelled' then return {'refused', 'cancelled'} end
  if is_cut(PARENT, 34) then return {'refused', 'cut'} end
  local ROOT = KEYS[34]
  local children, open = most(PARENT, 'max_children'), most(PARENT, 'max_open_children', ARGV[15])
  local depth, descendants = most(ROOT, 'max_depth', ARGV[16]), most(ROOT, 'max_descendants', ARGV[17])
  local _, above = string.gsub(redis.call('HGET', PARENT, 'ancestors') or '', '%S+', '')
  if children and redis.call('ZCARD', KEYS[33]) >= children then return {'refused', 'full', int(children)} end
  if ARGV[7] == '1' and redis.call('SCARD', PARENT_OPEN) >= open then return {'refused', 'open', int(open)} end
  if above >= depth then return {'refused', 'depth', int(depth)} end
  if most(ROOT, 'descendants', 0) >= descendants then return {'refused', 'descendants', int(descendants)} end
end
local function counted(at)
  local fields = {}
  for i = at + 1, at + tonumber(ARGV[at]) do fields[#fields + 1] = ARGV[i] end
  return fields, at + 1 + #fields
end
local task, at = counted(18)
local run, rest = counted(at)
redis.call('HSET', TASK, 'status', 'pending', 'phase', 'queued', 'run_id', run_id, 'epoch', '0', 'token', '',
  'created_ms', int(NOW), 'updated_ms', int(NOW), unpack(task))
redis.call('HSET', RUN, 'status', 'pending', 'attempt', '0', 'created_ms', int(NOW), unpack(run))
redis.call('SET', INPUT, ARGV[5])
if ARGV[11] ~= '' then redis.call('HSET', LARGE, 'context', ARGV[11]) end
if ARGV[12] ~= '' then redis.call('HSET', LARGE, 'configurable', ARGV[12]) end
if ARGV[13] ~= '' then redis.call('HSET', LARGE, 'rubric', ARGV[13]) end
if rest <= #ARGV then redis.call('HINCRBY', KEYS[#KEYS], 'runs', 1) end
for i = rest, #ARGV, 2 do redis.call('HSETNX', KEYS[#KEYS], ARGV[i], ARGV[i + 1]) end
redis.call('RPUSH', RUNS, run_id)
redis.call('ZADD', index_of('pending'), NOW, task_id)
redis.call('ZADD', KEYS[30], NOW, task_id)
redis.call('ZADD', KEYS[31], NOW, task_id)
redis.call('ZADD', KEYS[33], NOW, task_id)
redis.call('ZADD', RING_AT, NOW + tonumber(ARGV[4]), member(task_id, run_id))
if payload ~= '' then redis.call('HSET', KEYS[32], 'task_id', task_id, 'run_id', run_id, 'payload', payload) end
if HAS_PARENT then
  redis.call('HINCRBY', KEYS[34], 'descendants', 1)
  if ARGV[7] == '1' then redis.call('SADD', PARENT_OPEN, task_id) end
  take_place(TASK, 34)
end
emit(EVENTS, 'task.submitted', run_id, ARGV[6])
return {'created', task_id, run_id}
