-- What every transition of a task begins with. `clock.lua`, `fence.lua` and the table MOVES stand before it, the script after it.
-- KEYS  1 task  2 run  3 input  4 large  5 events  6 runs  7 leases  8 ring_at  9 slots  10-17 status indexes in the
--       order of STATUSES; what a script needs besides stands from 18 on. Keys are handed in, never built or scanned.
local TASK, RUN, INPUT, LARGE, EVENTS, RUNS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local LEASES, RING_AT, SLOTS = KEYS[7], KEYS[8], KEYS[9]
local EVENTS_KEPT = 5000

local function index_of(status)
  for i = 1, #STATUSES do
    if STATUSES[i] == status then return KEYS[9 + i] end
  end
end

local function member(task_id, run_id) return task_id .. '/' .. run_id end

local function emit(events, kind, run_id, data)
  redis.call('XADD', events, 'MAXLEN', '~', EVENTS_KEPT, '*', 'type', kind, 'run', run_id, 'data', data)
end

-- Make a move of the table, or fail loudly: one that is not in it is a bug, not an event.
local function move(task, name, status, phase)
  local now = redis.call('HMGET', task, 'task_id', 'status', 'phase', 'created_ms')
  local from, to = now[2] .. '/' .. now[3], status .. '/' .. phase
  if not MOVES[name][from .. '>' .. to] then error('MOVE task ' .. now[1] .. ': ' .. name .. ', ' .. from .. ' > ' .. to) end
  if now[2] ~= status then
    redis.call('ZREM', index_of(now[2]), now[1])
    redis.call('ZADD', index_of(status), now[4], now[1])
  end
  redis.call('HSET', task, 'status', status, 'phase', phase, 'updated_ms', int(NOW))
end

-- Take a run off the clockwork: nobody holds it, nobody rings it, and it neither has a slot nor waits for one.
local function unhold(task_id, run_id)
  for _, clockwork in ipairs({LEASES, RING_AT, SLOTS}) do redis.call('ZREM', clockwork, member(task_id, run_id)) end
end

-- Add the time since the run was claimed to the task's working time; of a lost run, until its lease ran out.
local function count_work(lease_until)
  local worked = math.min(NOW, tonumber(lease_until)) - tonumber(redis.call('HGET', RUN, 'claimed_ms'))
  redis.call('HINCRBY', TASK, 'working_ms', int(math.max(worked, 0)))
end

-- Whether an ancestor was cancelled with its children since `take_place` was called for the task. The keys of its
-- ancestors, root first, begin at KEYS[first]. An ancestor that no longer exists cuts nothing.
local function is_cut(task, first)
  local i = first
  for id in string.gmatch(redis.call('HGET', task, 'ancestors') or '', '%S+') do
    local cut = redis.call('HGET', KEYS[i], 'cut') or '0'
    if cut ~= (redis.call('HGET', task, 'cut:' .. id) or '0') and redis.call('EXISTS', KEYS[i]) == 1 then return true end
    i = i + 1
  end
  return false
end

-- Note the cuts of the task's ancestors as they are now: only one that rises later cuts the task.
local function take_place(task, first)
  local i = first
  for id in string.gmatch(redis.call('HGET', task, 'ancestors') or '', '%S+') do
    redis.call('HSET', task, 'cut:' .. id, redis.call('HGET', KEYS[i], 'cut') or '0')
    i = i + 1
  end
end

-- The run has ended: its input goes, and so does the snapshot that it began with. Where the run did not end well and
-- they are not in the saved state yet, they are kept for the task's next run, whatever starts it. The tree's snapshots
-- (the last key) go with the last run that was to begin with one.
local function use_up_input(run_id, well)
  local is_saved = redis.call('HGET', TASK, 'saved_run') == run_id or redis.call('HGET', RUN, 'kind') == 'grade'
  local given, fork = redis.call('GET', INPUT), redis.call('HGET', RUN, 'fork')
  redis.call('DEL', INPUT)
  redis.call('HDEL', RUN, 'fork')
  if not (well or is_saved) then
    local before = redis.call('HGET', LARGE, 'unsaved')
    if given then redis.call('HSET', LARGE, 'unsaved', before and before .. '\n' .. given or given) end
    if fork then redis.call('HSET', TASK, 'unsaved_fork', fork) end
    return
  end
  if not fork then return end
  if redis.call('HINCRBY', KEYS[#KEYS], 'runs', -1) <= 0 then redis.call('DEL', KEYS[#KEYS]) end
end
