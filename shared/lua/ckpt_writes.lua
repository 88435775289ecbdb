-- Store writes of one task on a checkpoint. An ordinary write (idx >= 0) that is there already stays as it is;
-- a special one (error, interrupt, resume, scheduled: idx < 0) is replaced.
-- ARGV 7 checkpoint id 8 number of segments, then (digest, segment)…, then task and path, then (idx, channel, cell)…
-- Returns 0, or -2: a segment is missing, bring all of them.
if refused() then return -1 end
local at = take_segments(8)
for i = at + 4, #ARGV, 3 do
  if incomplete(ARGV[i]) then return -2 end
end
register(redis.call('HGET', INDEX, 'seq') or 0)
local id, task, path, lines, cells = ARGV[7], ARGV[at], ARGV[at + 1], {}, {}
for i = at + 2, #ARGV, 3 do
  local field = 'w' .. id .. US .. task .. US .. ARGV[i]
  local known = redis.call('HEXISTS', STATE, field) == 1
  if not known then lines[#lines + 1] = table.concat({task, ARGV[i], path, ARGV[i + 1]}, US) .. RS end
  if not known or tonumber(ARGV[i]) < 0 then
    cells[#cells + 1] = field
    cells[#cells + 1] = ARGV[i + 2]
  end
end
set_cells(cells)
if #lines > 0 then
  redis.call('HSET', STATE, 'i' .. id, (redis.call('HGET', STATE, 'i' .. id) or '') .. table.concat(lines))
end
return 0
