-- What every transition of a task begins with. The store puts the table MOVES before this text and one script after it.
-- KEYS  1 task  2 run  3 input  4 large  5 events  6 runs  7 leases  8 ring_at  9 slots  10-17 status indexes in the
--       order of STATUSES; what a script needs besides stands from 18 on. Keys are handed in, never built or scanned.
-- The clock is Redis' own, in Unix ms.
local TASK, RUN, INPUT, LARGE, EVENTS, RUNS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local LEASES, RING_AT, SLOTS = KEYS[7], KEYS[8], KEYS[9]
local EVENTS_KEPT = 5000

local clock = redis.call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Large numbers as text: Lua would write 1.7e+12.
local function int(n) return string.format('%d', n) end

local function index_of(status)
  for i = 1, #STATUSES do
    if STATUSES[i] == status then return KEYS[9 + i] end
  end
end

local function member(task_id, run_id) return task_id .. '/' .. run_id end

local function emit(events, kind, run_id, data)
  redis.call('XADD', events, 'MAXLEN', '~', EVENTS_KEPT, '*', 'type', kind, 'run', run_id, 'data', data)
end

-- Is this claim still the one that holds the task? Returns false where a later claim or a cancel replaced it.
local function holds(task, run_id, epoch, token)
  local now = redis.call('HMGET', task, 'run_id', 'epoch', 'token')
  return now[1] == run_id and now[2] == epoch and now[3] == token
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

-- Was an ancestor cancelled together with its children since the task took its place? The keys of the task's ancestors,
-- root first, begin at KEYS[first]. An ancestor that is gone cuts nothing.
local function is_cut(task, first)
  local i = first
  for id in string.gmatch(redis.call('HGET', task, 'ancestors') or '', '%S+') do
    local cut = redis.call('HGET', KEYS[i], 'cut') or '0'
    if cut ~= (redis.call('HGET', task, 'cut:' .. id) or '0') and redis.call('EXISTS', KEYS[i]) == 1 then return true end
    i = i + 1
  end
  return false
end

-- Note the cuts of the task's ancestors, whose keys begin at KEYS[first]: what was cut before cuts it no more.
local function take_place(task, first)
  local i = first
  for id in string.gmatch(redis.call('HGET', task, 'ancestors') or '', '%S+') do
    redis.call('HSET', task, 'cut:' .. id, redis.call('HGET', KEYS[i], 'cut') or '0')
    i = i + 1
  end
end

-- The run has ended: nobody takes up its input any more, nor the snapshot that it began with, unless it did not end well
-- and they are not in the saved state: then the next run gets them, whatever starts it. The tree's snapshots (the last
-- key) go when no run is left that is to begin with one.
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
