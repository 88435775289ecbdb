-- Which leases ran out, which bells are overdue, and which questions nobody answered in time. When nobody swept for so
-- long that Redis was away, or no worker up, holders get one full lease to renew before any is declared lost.
-- KEYS  1 last sweep  2 leases  3 ring_at  4 until when answers may come
-- ARGV  lease_ms  page  for how many ms nobody swept then
-- Returns {members with an expired lease}, {members with an overdue bell}, {members whose question expired}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local last = redis.call('HMGET', KEYS[1], 'at', 'grace_until')
local grace_until = tonumber(last[2]) or 0
if last[1] and now - tonumber(last[1]) > tonumber(ARGV[3]) then grace_until = now + tonumber(ARGV[1]) end
redis.call('HSET', KEYS[1], 'at', string.format('%d', now), 'grace_until', string.format('%d', grace_until))
local function due(key) return redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, ARGV[2]) end
local lost = {}
if now >= grace_until then lost = due(KEYS[2]) end
return {lost, due(KEYS[3]), due(KEYS[4])}
