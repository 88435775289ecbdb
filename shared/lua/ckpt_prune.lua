-- Drop old checkpoints of one namespace, and what only they hold.
-- ARGV 7 how many of the newest stay ('' = all but those named) 8 how many to drop at most, then ids to drop
-- A dropped checkpoint that a kept one reaches back to for a delta channel becomes a link: its parent, the writes to
-- such channels and their stored value. Links in the middle of a chain that hold neither are left out of it.
-- Returns: how many are left to drop, then the namespaces whose owner is gone from this one.
if refused() then return -1 end
local whole = redis.call('ZRANGEBYSCORE', ORDER, '(0', '+inf')
local candidates = redis.call('ZRANGEBYSCORE', ORDER, '-inf', '(0')
local named, kept, left, dropped = {}, {}, 0, 0
for i = 9, #ARGV do named[ARGV[i]] = true end
local old = ARGV[7] ~= '' and #whole - tonumber(ARGV[7]) or 0
for i, id in ipairs(whole) do
  if not (i <= old or named[id]) then
    kept[#kept + 1] = id
  elseif dropped < tonumber(ARGV[8]) then
    candidates[#candidates + 1] = id
    dropped = dropped + 1
  else
    kept[#kept + 1] = id
    left = left + 1
  end
end

-- What the kept ones need: live entries, and channels by ancestor.
local live, need, stays = {}, {}, {}
for _, id in ipairs(kept) do
  local here = node(id)
  stays[id] = true
  for _, entry in pairs(here.entries) do live[entry] = true end
  local open, at = {}, here.parent
  for _, channel in ipairs(here.delta) do open[channel] = true end
  -- Its parent's id stands in its own record and is not changed: the chain begins there.
  if next(open) and node(at) then stays[at] = true end
  while next(open) and at ~= '' do
    local there, news = node(at), false
    if not there then break end
    need[at] = need[at] or {}
    for channel in pairs(open) do
      if not need[at][channel] then
        need[at][channel] = true
        news = true
      end
      local entry = there.entries[channel]
      if not entry then
        open[channel] = nil
      elseif redis.call('HEXISTS', STATE, 'b' .. entry) == 1 then
        open[channel] = nil
        live[entry] = true
      end
    end
    if not news then break end
    at = there.parent
  end
end
for _, id in ipairs(candidates) do
  if need[id] and not stays[id] then
    for _, write in ipairs(writes_of(id)) do stays[id] = stays[id] or need[id][write.channel] end
    for channel in pairs(need[id]) do
      local entry = node(id).entries[channel]
      stays[id] = stays[id] or (entry and redis.call('HEXISTS', STATE, 'b' .. entry) == 1)
    end
  end
end

local function onward(id)
  while id ~= '' and not stays[id] do id = node(id) and node(id).parent or '' end
  return id
end

for _, id in ipairs(candidates) do
  local here, wanted = node(id), stays[id] and need[id] or {}
  local entries, lines = {}, {}
  for channel, entry in pairs(here.entries) do
    if not live[entry] then drop_cell('b' .. entry) end
    if wanted[channel] then entries[#entries + 1] = RS .. entry end
  end
  for _, write in ipairs(writes_of(id)) do
    if wanted[write.channel] then
      lines[#lines + 1] = write.line .. RS
    else
      drop_cell(write.field)
    end
  end
  if #lines > 0 then
    redis.call('HSET', STATE, 'i' .. id, table.concat(lines))
  else
    redis.call('HDEL', STATE, 'i' .. id)
  end
  if stays[id] then
    redis.call('HSET', STATE, 'c' .. id, onward(here.parent) .. RS .. table.concat(entries) .. NUL)
    redis.call('ZADD', ORDER, -math.abs(redis.call('ZSCORE', ORDER, id)), id)
  else
    redis.call('HDEL', STATE, 'c' .. id)
    redis.call('ZREM', ORDER, id)
  end
end

local head = redis.call('HGET', STATE, 'head')
if #kept == 0 then
  redis.call('DEL', STATE, ORDER)
  redis.call('HDEL', INDEX, 'n' .. ARGV[5])
elseif head and not stays[head] then
  redis.call('HSET', STATE, 'head', kept[#kept])
end

-- A step that still goes on may have subgraphs before its own checkpoint is put: those have a newer put number.
local reply, index = {left}, redis.call('HGETALL', INDEX)
local oldest = kept[1] and tonumber(redis.call('ZSCORE', ORDER, kept[1])) or math.huge
for i = 1, #index, 2 do
  local owner = split(index[i + 1], NUL)
  if #owner == 3 and owner[1] == ARGV[5] and tonumber(owner[3]) < oldest then
    local number = redis.call('ZSCORE', ORDER, owner[2])
    if not number or tonumber(number) < 0 then reply[#reply + 1] = string.sub(index[i], 2) end
  end
end
return reply
