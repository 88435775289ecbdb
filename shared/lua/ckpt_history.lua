-- Walk from a checkpoint to its ancestors and gather, for each channel, its writes back to the nearest stored value.
-- ARGV 1 id ('' = the head), then the channels.
-- Returns number of seeds, (channel, cell)…, number of writes, (steps back, task, idx, path, channel, cell)…,
-- then each segment that the cells name: (digest, segment)…
local start = node(ARGV[1] ~= '' and ARGV[1] or redis.call('HGET', STATE, 'head') or '')
local open, seeds, found, cells = {}, {}, {}, {}
for i = 2, #ARGV do open[ARGV[i]] = true end
local at, back = start and start.parent or '', 0
while next(open) and at ~= '' do
  local here = node(at)
  if not here then break end
  for _, write in ipairs(writes_of(at)) do
    if open[write.channel] then
      local cell = redis.call('HGET', STATE, write.field)
      found[#found + 1] = {back, write.task, write.idx, write.path, write.channel, cell}
      cells[#cells + 1] = cell
    end
  end
  for channel in pairs(open) do
    local entry = here.entries[channel]
    local cell = entry and redis.call('HGET', STATE, 'b' .. entry)
    if cell then
      seeds[#seeds + 1] = {channel, cell}
      cells[#cells + 1] = cell
      open[channel] = nil
    end
  end
  at, back = here.parent, back + 1
end
local reply = {#seeds}
for _, group in ipairs({seeds, found}) do
  if group == found then reply[#reply + 1] = #found end
  for _, row in ipairs(group) do
    for _, part in ipairs(row) do reply[#reply + 1] = part end
  end
end
return add_segments(reply, cells)
