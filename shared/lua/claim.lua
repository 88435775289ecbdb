-- Move a pending run to running and hand its facts to the worker. The first claim fixes what the run is given, and its
-- range of notifications. Where no slot is free, or others have waited longer for the free ones, the run stays pending
-- and waits for one. The same token again gets the same reply.
-- KEYS  18 the task's inbox  19 … ancestors, root first  last: the tree's snapshots
-- ARGV  task_id  run_id  token  worker  lease_ms  event_data  slots (how many its agent has, 0 = no bound)  ring_again_ms
-- Returns {'claimed', epoch, input, fields of the task, fields of the run, entries of the inbox, context, configurable,
--          items of the snapshot that the run begins with},
--         {'dropped', status of the run ('' = there is none)}, {'waits'} for a slot, {'early', type of the error} where its
--         next attempt may not start yet, or {'cut'} where an ancestor was cancelled with its children
local task_id, run_id, token, worker, lease_ms, event_data, slots, ring_again_ms = unpack(ARGV, 1, 8)
local lease_until = NOW + tonumber(lease_ms)

local function snapshot()
  local name, items = redis.call('HGET', RUN, 'fork'), {}
  local names = name and redis.call('HGET', KEYS[#KEYS], name) or ''
  for i = 1, #names, 16 do items[#items + 1] = redis.call('HGET', KEYS[#KEYS], string.sub(names, i, i + 15)) end
  return items
end

local function facts()
  local range = redis.call('HMGET', RUN, 'inbox_from', 'inbox_to')
  local inbox = {}
  if range[2] and tonumber(range[2]) >= tonumber(range[1]) then
    inbox = redis.call('XRANGE', KEYS[18], range[1] .. '-0', range[2] .. '-0')
  end
  return {'claimed', redis.call('HGET', TASK, 'epoch'), redis.call('GET', INPUT) or '', redis.call('HGETALL', TASK),
    redis.call('HGETALL', RUN), inbox, redis.call('HGET', LARGE, 'context'), redis.call('HGET', LARGE, 'configurable'),
    snapshot()}
end

-- What earlier runs were given and did not save comes first.
local function take_unsaved(fork)
  local unsaved = redis.call('HGET', LARGE, 'unsaved')
  if unsaved then
    redis.call('SET', INPUT, unsaved .. '\n' .. (redis.call('GET', INPUT) or ''))
    redis.call('HDEL', LARGE, 'unsaved')
  end
  if fork then
    redis.call('HSET', RUN, 'fork', fork)
    redis.call('HDEL', TASK, 'unsaved_fork')
  end
end

-- Whether the run may have a slot now. If not, it waits in its place.
local function has_turn(it, created)
  if slots == '0' then return true end
  local score = tonumber(redis.call('ZSCORE', SLOTS, it))
  if score and score > NOW then return true end
  if not score or score >= 0 then redis.call('ZADD', SLOTS, created - BELOW_ZERO, it) end
  if redis.call('ZRANK', SLOTS, it) < tonumber(slots) - taken(SLOTS, LEASES) then return true end
  if redis.call('HGET', TASK, 'waits_for') ~= 'slot' then
    redis.call('HSET', TASK, 'waits_for', 'slot')
    emit(EVENTS, 'run.waits', run_id, '{"for":"slot"}')
  end
  -- Whoever frees a slot rings, and so does each sweep. This bell is for when no worker has slots for the agent any
  -- more.
  redis.call('ZADD', RING_AT, NOW + tonumber(ring_again_ms) * 2 ^ 6, it)
  return false
end

local run = redis.call('HMGET', RUN, 'status', 'token', 'inbox_to', 'created_ms', 'kind', 'not_before_ms', 'error_type')
local grades = run[5] == 'grade' -- a grade run takes neither a slot of the agent nor its news
if redis.call('HGET', TASK, 'run_id') ~= run_id or not run[1] then return {'dropped', run[1] or ''} end
if run[1] == 'running' and run[2] == token then return facts() end
if run[1] ~= 'pending' then return {'dropped', run[1]} end
if is_cut(TASK, 19) then return {'cut'} end
if (tonumber(run[6]) or 0) > NOW then return {'early', run[7] or ''} end
if not grades and not has_turn(member(task_id, run_id), tonumber(run[4])) then return {'waits'} end
move(TASK, 'claim', 'running', grades and 'grading' or 'working')
local epoch = int(redis.call('HINCRBY', TASK, 'epoch', 1))
redis.call('HSET', TASK, 'token', token, 'waits_for', '')
redis.call('HSET', RUN, 'status', 'running', 'epoch', epoch, 'token', token, 'worker', worker,
  'claimed_ms', int(NOW), 'lease_until_ms', int(lease_until))
redis.call('HSETNX', RUN, 'started_ms', int(NOW))
redis.call('HDEL', RUN, 'not_before_ms', 'error_type', 'error_message')
if not run[3] and not grades then
  local inbox = redis.call('HMGET', TASK, 'cursor', 'seq', 'unsaved_fork')
  redis.call('HSET', RUN, 'inbox_from', int((tonumber(inbox[1]) or 0) + 1), 'inbox_to', inbox[2] or '0')
  redis.call('HSET', TASK, 'given', inbox[2] or '0')
  take_unsaved(inbox[3])
end
redis.call('ZREM', RING_AT, member(task_id, run_id))
redis.call('ZADD', LEASES, lease_until, member(task_id, run_id))
if not grades then redis.call('ZADD', SLOTS, lease_until, member(task_id, run_id)) end
emit(EVENTS, 'run.claimed', run_id, event_data)
return facts()
