-- Hand a running parent the notifications that are not in its state yet, under its claim.
-- KEYS  18 the task's inbox
-- ARGV  run_id  epoch  token  after (the last one in the state)
-- Returns {'taken', entries of the inbox} or {'refused'}
if not holds(TASK, ARGV[1], ARGV[2], ARGV[3]) then return {'refused'} end
local entries = redis.call('XRANGE', KEYS[18], int(tonumber(ARGV[4]) + 1) .. '-0', '+')
if #entries > 0 then
  local last = tonumber(string.match(entries[#entries][1], '^%d+'))
  if last > (tonumber(redis.call('HGET', TASK, 'given')) or 0) then redis.call('HSET', TASK, 'given', int(last)) end
end
return {'taken', entries}
