-- Take an answer to a question of the task. The last answer starts a run, which is given all of them. A repeated call
-- gets the same reply.
-- KEYS  after the family: 30 the task's answers: by question, and which question each call answered
-- ARGV  id (of the question, '' = the only open one)  value  call_id (of this call)  next_id (for the run that goes on)
--       ring_again_ms
-- Returns {'answered', id, {ids still open}, what the bell of the run needs}, {'several', {open ids}},
--         {'not_asked', {open ids}}, {'not_waiting', status}, or {'unknown'}
local id, value, call_id, next_id, ring_again_ms = unpack(ARGV, 1, 5)
local ANSWERS, CALL = KEYS[30], 'by ' .. call_id
local task = redis.call('HMGET', TASK, 'status', 'phase', 'asked', 'asks', 'cursor', 'answer_queue')
if not task[1] then return {'unknown'} end

local function ids(text)
  local found = {}
  for one in string.gmatch(text or '', '%S+') do found[#found + 1] = one end
  return found
end

local answered = redis.call('HGET', ANSWERS, CALL)
if answered then return {'answered', answered, ids(task[4]), bell(TASK, NEXT_RUN)} end
if not MOVES.answer[task[1] .. '/' .. task[2] .. '>pending/queued'] then return {'not_waiting', task[1]} end
local open = ids(task[4])
if id == '' then
  if #open ~= 1 then return {'several', open} end
  id = open[1]
end
local left = {}
for _, one in ipairs(open) do
  if one ~= id then left[#left + 1] = one end
end
if #left == #open then return {'not_asked', open} end

if task[3] == task[4] then redis.call('DEL', ANSWERS) end
redis.call('HSET', ANSWERS, id, value, CALL, id)
redis.call('HSET', TASK, 'asks', table.concat(left, ' '), 'updated_ms', int(NOW))
local data = '{"status":"%s","id":"' .. id .. '","open":' .. #left .. '}'
if #left > 0 then
  emit(EVENTS, 'task.answered', '', string.format(data, 'waiting'))
  return {'answered', id, left, {}}
end

local values = {}
for _, one in ipairs(ids(task[3])) do
  values[#values + 1] = '"' .. one .. '":' .. redis.call('HGET', ANSWERS, one)
  redis.call('HDEL', ANSWERS, one)
end
move(TASK, 'answer', 'pending', 'queued')
redis.call('HDEL', LARGE, 'interrupts')
-- News never rides on an answer: what is there comes before the run's next model call, or wakes the task after it.
local cursor = tonumber(task[5]) or 0
redis.call('HSET', NEXT_RUN, 'inbox_from', int(cursor + 1), 'inbox_to', int(cursor))
return {'answered', id, left, begin(TASK, EVENTS, RUNS, NEXT_RUN, NEXT_INPUT, next_id, 'agent', task[6],
  '{"answers":{' .. table.concat(values, ',') .. '}}', 'task.answered', string.format(data, 'pending'), ring_again_ms)}
