-- Store a checkpoint and make it the head.
-- ARGV 7 id 8 number of the last notification that this state has ('' = none) 9 '1' where it has the run's input
-- 10 number of segments, then (digest, segment)…, then the record, then (entry, cell)…
-- Returns the number of whole checkpoints in the namespace, or -2: a segment is missing, bring all of them.
-- A claim is refused too where Redis has lost what it saved or was told before, as a failover may lose the last second:
-- a state that built on that would have holes for good.
if refused() then return -1 end
local id, at, cells = ARGV[7], take_segments(10), {}
if TASK then
  local parent = string.match(ARGV[at], '^[^\30]*')
  if parent ~= '' and redis.call('HEXISTS', STATE, 'c' .. parent) == 0 then return -1 end
  if (tonumber(ARGV[8]) or 0) > (tonumber(redis.call('HGET', TASK, 'seq')) or 0) then return -1 end
end
for i = at + 1, #ARGV, 2 do
  if incomplete(ARGV[i + 1]) then return -2 end
  cells[#cells + 1] = 'b' .. ARGV[i]
  cells[#cells + 1] = ARGV[i + 1]
end
local number = redis.call('HINCRBY', INDEX, 'seq', 1)
register(number)
set_cells(cells)
redis.call('HSET', STATE, 'c' .. id, ARGV[at], 'head', id)
redis.call('ZADD', ORDER, number, id)
-- Losses and errors of a run count since the last new checkpoint.
if TASK then redis.call('HINCRBY', TASK, 'saves', 1) end
if ARGV[8] ~= '' and tonumber(ARGV[8]) > (tonumber(redis.call('HGET', TASK, 'cursor')) or 0) then
  redis.call('HSET', TASK, 'cursor', ARGV[8])
end
if ARGV[9] == '1' then redis.call('HSET', TASK, 'saved_run', ARGV[1]) end
return redis.call('ZCOUNT', ORDER, '(0', '+inf')
