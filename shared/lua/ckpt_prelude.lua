-- What all checkpoint scripts share; `fence.lua` stands before it. One thread has, per checkpoint namespace:
--   state  hash        head -> id of the newest · c<id> -> record · i<id> -> index of the writes
--                      b<channel US version> -> cell · w<id US task US idx> -> cell
--   order  sorted set  checkpoint ids by put number; a negative number is a link: an old checkpoint of which
--                      only what delta channels still need is left
-- and for all its namespaces together:
--   pool   hash        digest -> segment of a list · refs hash: digest -> number of cells that name it
--   index  hash        seq -> last put number · n<namespace> -> empty, or owner NUL put number;
--                      owner: the namespace NUL checkpoint id in whose step a subgraph runs
-- record: parent RS delta channels (US between) RS entry RS entry … NUL payload; a link has no payload
-- cell:   p… whole value, or r<6 hex digits: n><n digests>… value whose lists lie in the pool
-- index of the writes: task US idx US path US channel RS …
--
-- KEYS 1 state 2 pool 3 refs 4 order 5 index 6 threads 7 task record (only where a claim fences)
-- ARGV of what writes: 1 run id ('' = no claim) 2 epoch 3 token 4 thread id 5 namespace 6 owner
-- What is fenced answers -1 when the claim was replaced; nothing is written then.
local STATE, POOL, REFS, ORDER, INDEX, THREADS, TASK = unpack(KEYS)
local US, RS, NUL = '\31', '\30', '\0'
local FRESH = {}

local function refused() return ARGV[1] ~= '' and not holds(TASK, ARGV[1], ARGV[2], ARGV[3]) end

local function split(text, mark)
  local parts, from = {}, 1
  if text == '' then return parts end
  while true do
    local at = string.find(text, mark, from, true)
    if not at then
      parts[#parts + 1] = string.sub(text, from)
      return parts
    end
    parts[#parts + 1] = string.sub(text, from, at - 1)
    from = at + 1
  end
end

local function digests(cell)
  local found = {}
  if string.sub(cell, 1, 1) == 'r' then
    for i = 0, tonumber(string.sub(cell, 2, 7), 16) - 1 do
      found[i + 1] = string.sub(cell, 8 + 16 * i, 23 + 16 * i)
    end
  end
  return found
end

-- Take in the segments that ARGV brings: their number stands at `at`. Returns where ARGV goes on.
local function take_segments(at)
  local last = at + 2 * tonumber(ARGV[at])
  for i = at + 1, last, 2 do FRESH[ARGV[i]] = ARGV[i + 1] end
  return last + 1
end

-- Whether a cell names a segment that neither lies in the pool nor came along.
local function incomplete(cell)
  for _, digest in ipairs(digests(cell)) do
    if not FRESH[digest] and redis.call('HEXISTS', POOL, digest) == 0 then return true end
  end
  return false
end

local function hold(cell)
  for _, digest in ipairs(digests(cell)) do
    if redis.call('HINCRBY', REFS, digest, 1) == 1 then redis.call('HSET', POOL, digest, FRESH[digest]) end
  end
end

local function release(cell)
  for _, digest in ipairs(digests(cell)) do
    if redis.call('HINCRBY', REFS, digest, -1) <= 0 then
      redis.call('HDEL', REFS, digest)
      redis.call('HDEL', POOL, digest)
    end
  end
end

-- Set cells, given as field and cell by turns. What they replace is let go last: a new cell may name the same segments.
local function set_cells(pairs_of)
  local replaced = {}
  for i = 1, #pairs_of, 2 do
    replaced[#replaced + 1] = redis.call('HGET', STATE, pairs_of[i]) or nil
    hold(pairs_of[i + 1])
    redis.call('HSET', STATE, pairs_of[i], pairs_of[i + 1])
  end
  for _, cell in ipairs(replaced) do release(cell) end
end

local function drop_cell(field)
  local old = redis.call('HGET', STATE, field)
  if old then
    release(old)
    redis.call('HDEL', STATE, field)
  end
end

-- Note the namespace in the index, with the put number at which its owner's step was still going on.
local function register(number)
  local field = 'n' .. ARGV[5]
  local new = redis.call('HEXISTS', INDEX, field) == 0
  if ARGV[6] ~= '' then
    redis.call('HSET', INDEX, field, ARGV[6] .. NUL .. number)
  elseif new then
    redis.call('HSET', INDEX, field, '')
  end
  if new then redis.call('SADD', THREADS, ARGV[4]) end
end

-- A record's head, read once: parent, delta channels, entry by channel, and whether it is a link.
local NODES = {}
local function node(id)
  if NODES[id] == nil then
    local record = redis.call('HGET', STATE, 'c' .. id)
    if record then
      local cut = string.find(record, NUL, 1, true)
      local parts = split(string.sub(record, 1, cut - 1), RS)
      local entries = {}
      for i = 3, #parts do entries[string.match(parts[i], '^(.*)\31')] = parts[i] end
      NODES[id] = {parent = parts[1], delta = split(parts[2], US), entries = entries, link = cut == #record,
                   record = record}
    else
      NODES[id] = false
    end
  end
  return NODES[id]
end

-- The writes of a checkpoint: task, idx, path, channel, and the field of the cell.
local function writes_of(id)
  local found = {}
  for _, line in ipairs(split(redis.call('HGET', STATE, 'i' .. id) or '', RS)) do
    if line ~= '' then
      local part = split(line, US)
      found[#found + 1] = {task = part[1], idx = part[2], path = part[3], channel = part[4], line = line,
                           field = 'w' .. id .. US .. part[1] .. US .. part[2]}
    end
  end
  return found
end

-- Append to a reply each segment that its cells name, once: digest, segment.
local function add_segments(reply, cells)
  local sent = {}
  for _, cell in ipairs(cells) do
    for _, digest in ipairs(digests(cell)) do
      if not sent[digest] then
        sent[digest] = true
        reply[#reply + 1] = digest
        reply[#reply + 1] = redis.call('HGET', POOL, digest)
      end
    end
  end
  return reply
end
