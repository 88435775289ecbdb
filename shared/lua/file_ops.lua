-- The file store: one call does a batch of operations, one after the other, as one step.
-- KEYS  1 seq      string      the last number given out; positions and versions are such numbers
--       2 heads    hash        id -> "position version created updated ttl": Unix µs, ttl in ms (0 = none)
--       3 values   hash        id -> JSON
--       4 order    sorted set  <namespace> NUL <position><key>, by text: the items of a namespace as they came
--       5 spaces   sorted set  <namespace> NUL <position>, by text: the namespaces that hold items, as they came
--       6 expires  sorted set  id by the Unix ms at which the item is gone
-- An id is <namespace> NUL <key>. A namespace is its labels joined by ".", which no label holds.
-- ARGV  per operation: name, number of arguments, arguments; what they are stands at each below.
-- Returns one flat array per operation; or -1, and no operation was done, while more has expired than one call removes.
local SEQ, HEADS, VALUES, ORDER, SPACES, EXPIRES = unpack(KEYS)
local NUL, AFTER_NUL, AFTER_TEXT = '\0', '\1', '\255'
local POSITION = 16
local EXPIRED_PER_CALL = 500
local PAGE_BYTES = 8 * 1024 * 1024

local clock = redis.call('TIME')
local NOW_US = clock[1] .. string.format('%06d', clock[2])
local NOW_MS = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function int(n) return string.format('%d', n) end

local function new_number() return string.format('%016d', redis.call('INCR', SEQ)) end

local function id_of(space, key) return space .. NUL .. key end

local function cut(text)
  local at = string.find(text, NUL, 1, true)
  return string.sub(text, 1, at - 1), string.sub(text, at + 1)
end

-- The range of an index that holds one namespace.
local function span(space) return '[' .. space .. NUL, '(' .. space .. AFTER_NUL end

-- The ranges that hold a namespace and all below it.
local function spans(prefix)
  if prefix == '' then return {{'-', '+'}} end
  return {{span(prefix)}, {'[' .. prefix .. '.', '(' .. prefix .. '/'}}
end

local function expire(id, ttl)
  if ttl == '0' then redis.call('ZREM', EXPIRES, id)
  else redis.call('ZADD', EXPIRES, int(NOW_MS + ttl), id) end
end

local function touch(id, head)
  local ttl = string.match(head, '%d+$')
  if ttl ~= '0' then expire(id, ttl) end
end

local function remove(space, key)
  local id = id_of(space, key)
  local head = redis.call('HGET', HEADS, id)
  redis.call('ZREM', EXPIRES, id)
  if not head then return end
  redis.call('HDEL', HEADS, id)
  redis.call('HDEL', VALUES, id)
  redis.call('ZREM', ORDER, space .. NUL .. string.sub(head, 1, POSITION) .. key)
  local first, last = span(space)
  if #redis.call('ZRANGEBYLEX', ORDER, first, last, 'LIMIT', 0, 1) == 0 then
    redis.call('ZREMRANGEBYLEX', SPACES, first, last)
  end
end

-- Store a value over `head`, or as a new item. `ttl` in ms, '0' = none, 'same' = what the item had. Returns its
-- version.
local function store(space, key, head, value, ttl)
  local id, version = id_of(space, key), new_number()
  local position, created, had = version, NOW_US, '0'
  if head then
    position, created, had = string.match(head, '^(%d+) %d+ (%d+) %d+ (%d+)$')
  else
    local first, last = span(space)
    if #redis.call('ZRANGEBYLEX', SPACES, first, last, 'LIMIT', 0, 1) == 0 then
      redis.call('ZADD', SPACES, 0, space .. NUL .. position)
    end
    redis.call('ZADD', ORDER, 0, space .. NUL .. position .. key)
  end
  if ttl == 'same' then ttl = had end
  redis.call('HSET', HEADS, id, table.concat({position, version, created, NOW_US, ttl}, ' '))
  redis.call('HSET', VALUES, id, value)
  expire(id, ttl)
  return version
end

-- The namespaces at and below a prefix that stand at a position or after it, as they came: {{position, namespace}, …}.
local function spaces_from(prefix, position)
  local found = {}
  for _, range in ipairs(spans(prefix)) do
    for _, name in ipairs(redis.call('ZRANGEBYLEX', SPACES, range[1], range[2])) do
      local space, at = cut(name)
      if at >= position then found[#found + 1] = {at, space} end
    end
  end
  table.sort(found, function(a, b) return a[1] < b[1] end)
  return found
end

local DO = {}

-- touching: '1' starts the item's lifetime anew. Returns head, value; or nothing.
function DO.get(space, key, touching)
  local id = id_of(space, key)
  local head = redis.call('HGET', HEADS, id)
  if not head then return {} end
  if touching == '1' then touch(id, head) end
  return {head, redis.call('HGET', VALUES, id)}
end

-- ttl in ms, '0' = none.
function DO.put(space, key, value, ttl)
  store(space, key, redis.call('HGET', HEADS, id_of(space, key)), value, ttl)
  return {}
end

-- version: the one that the item must have, '0' = there must be none. Returns the new one; or nothing: it has another.
function DO.put_if(space, key, value, version)
  local head = redis.call('HGET', HEADS, id_of(space, key))
  local has = head and string.match(head, '^%d+ (%d+)') or '0'
  if tonumber(has) ~= tonumber(version) then return {} end
  return {store(space, key, head, value, 'same')}
end

function DO.delete(space, key)
  remove(space, key)
  return {}
end

-- Start the lifetime of an item anew.
function DO.touch(space, key)
  local id = id_of(space, key)
  local head = redis.call('HGET', HEADS, id)
  if head then touch(id, head) end
  return {}
end

-- The items at and below a prefix, by namespace and as they came there. from_space, from_item: where the last page
-- ended, empty at first. what: 'values' or 'sizes' (bytes). Returns from_space and from_item of the next page, empty
-- where there is none, then (namespace, key, head, value or size)…
function DO.search(prefix, from_space, from_item, offset, limit, touching, what)
  local reply, bytes = {'', ''}, 0
  offset, limit = tonumber(offset), tonumber(limit)
  for _, found in ipairs(spaces_from(prefix, from_space)) do
    local at, space = found[1], found[2]
    local first, last = span(space)
    if at == from_space then first = '(' .. space .. NUL .. from_item .. AFTER_TEXT end
    local places = redis.call('ZRANGEBYLEX', ORDER, first, last, 'LIMIT', offset, limit)
    if offset > 0 then offset = math.max(0, offset - redis.call('ZLEXCOUNT', ORDER, first, last)) end
    for _, place in ipairs(places) do
      local _, rest = cut(place)
      local id = id_of(space, string.sub(rest, POSITION + 1))
      local head = redis.call('HGET', HEADS, id)
      if touching == '1' then touch(id, head) end
      local body = redis.call(what == 'sizes' and 'HSTRLEN' or 'HGET', VALUES, id)
      if what ~= 'sizes' then bytes = bytes + #body end
      for _, part in ipairs({space, string.sub(rest, POSITION + 1), head, body}) do reply[#reply + 1] = part end
      limit = limit - 1
      if limit == 0 or bytes >= PAGE_BYTES then
        reply[1], reply[2] = at, string.sub(rest, 1, POSITION)
        return reply
      end
    end
  end
  return reply
end

-- The namespaces at and below a prefix, as they came.
function DO.spaces(prefix)
  local names = {}
  for i, found in ipairs(spaces_from(prefix, '')) do names[i] = found[2] end
  return names
end

-- Delete at most `limit` items at and below a prefix. Returns how many.
function DO.drop(prefix, limit)
  local dropped = 0
  for _, range in ipairs(spans(prefix)) do
    for _, place in ipairs(redis.call('ZRANGEBYLEX', ORDER, range[1], range[2], 'LIMIT', 0, limit - dropped)) do
      local space, rest = cut(place)
      remove(space, string.sub(rest, POSITION + 1))
      dropped = dropped + 1
    end
  end
  return {dropped}
end

local expired = redis.call('ZRANGEBYSCORE', EXPIRES, '-inf', int(NOW_MS), 'LIMIT', 0, EXPIRED_PER_CALL + 1)
for i = 1, math.min(#expired, EXPIRED_PER_CALL) do remove(cut(expired[i])) end
if #expired > EXPIRED_PER_CALL then return -1 end

local replies, at = {}, 1
while at <= #ARGV do
  local last = at + 1 + tonumber(ARGV[at + 1])
  replies[#replies + 1] = DO[ARGV[at]](unpack(ARGV, at + 2, last))
  at = last + 1
end
return replies
