-- The inbox of an external parent: note what its reader has dealt with, and hand out what comes next. One reader at a
-- time holds a lease. A reader that keeps its cursor in a saved state of its own needs none.
-- KEYS  18 the task's inbox
-- ARGV  token (of the reader, '' = without a lease)  how ('begin' | 'go on' | 'end')  lease_ms
--       done (number of the last notification that was dealt with)  after (number after which to read)  count (at most)
-- Returns {'read', status of the task, entries}, {'busy', ms until the lease of another reader ends}, {'lost'} where
--         another one took over, {'worker'} where the task runs in workers, or {'unknown'}
local token, how, lease_ms, done, after, count = unpack(ARGV, 1, 6)
local task = redis.call('HMGET', TASK, 'status', 'home', 'reader', 'reader_until_ms', 'cursor', 'given', 'seq')
if not task[1] then return {'unknown'} end
if task[2] ~= 'external' then return {'worker'} end
local function number(text) return tonumber(text or '') or 0 end

if token ~= '' then
  local reader = task[3] or ''
  if reader ~= token then
    if how ~= 'begin' then return {'lost'} end
    local left = number(task[4]) - NOW
    if reader ~= '' and left > 0 then return {'busy', left} end
  end
  if how == 'end' then
    redis.call('HDEL', TASK, 'reader', 'reader_until_ms')
    emit(EVENTS, 'inbox.left', '', '{}')
  else
    redis.call('HSET', TASK, 'reader', token, 'reader_until_ms', int(NOW + lease_ms))
  end
end
local cursor = math.max(number(task[5]), math.min(number(done), number(task[7])))
redis.call('HSET', TASK, 'cursor', int(cursor), 'given', int(math.max(number(task[6]), cursor)), 'updated_ms', int(NOW))
redis.call('XTRIM', KEYS[18], 'MINID', int(cursor + 1) .. '-0')
if count == '0' then return {'read', task[1], {}} end
local first = int(math.max(cursor, number(after)) + 1)
return {'read', task[1], redis.call('XRANGE', KEYS[18], first .. '-0', '+', 'COUNT', count)}
