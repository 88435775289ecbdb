-- Store a checkpoint and make it the head.
-- ARGV 7 id 8 number of segments, then (digest, segment)…, then the record, then (entry, cell)…
-- Returns the number of whole checkpoints in the namespace, or -2: a segment is missing, bring all of them.
if refused() then return -1 end
local id, at, cells = ARGV[7], take_segments(8), {}
for i = at + 1, #ARGV, 2 do
  if incomplete(ARGV[i + 1]) then return -2 end
  cells[#cells + 1] = 'b' .. ARGV[i]
  cells[#cells + 1] = ARGV[i + 1]
end
register()
set_cells(cells)
redis.call('HSET', STATE, 'c' .. id, ARGV[at], 'head', id)
redis.call('ZADD', ORDER, 'NX', redis.call('HINCRBY', INDEX, 'seq', 1), id)
return redis.call('ZCOUNT', ORDER, '(0', '+inf')
