-- Read a whole checkpoint. ARGV 1 id ('' = the head).
-- Returns nil, or: id, record, number of values, (entry, cell)…, number of writes, (task, idx, path, channel, cell)…,
-- then each segment that the cells name: (digest, segment)…
local id = ARGV[1] ~= '' and ARGV[1] or redis.call('HGET', STATE, 'head')
local found = id and node(id)
if not found or found.link then return false end
local reply, cells = {id, found.record, 0}, {}
for _, entry in pairs(found.entries) do
  local cell = redis.call('HGET', STATE, 'b' .. entry)
  if cell then
    reply[3] = reply[3] + 1
    reply[#reply + 1] = entry
    reply[#reply + 1] = cell
    cells[#cells + 1] = cell
  end
end
local writes = writes_of(id)
reply[#reply + 1] = #writes
for _, write in ipairs(writes) do
  local cell = redis.call('HGET', STATE, write.field)
  for _, part in ipairs({write.task, write.idx, write.path, write.channel, cell}) do reply[#reply + 1] = part end
  cells[#cells + 1] = cell
end
return add_segments(reply, cells)
