-- Find leases that ran out, bells that are overdue, and questions that nobody answered in time. When nobody swept for a
-- while (Redis was away, or no worker was up), workers get one full lease to renew before any lease is declared lost.
-- KEYS  1 last sweep  2 leases  3 ring_at  4 until when answers may come
-- ARGV  lease_ms  how many members of each kind at most  how many ms without a sweep are such a while
-- Returns {members with an expired lease}, {members with an overdue bell}, {members whose question expired}
local last = redis.call('HMGET', KEYS[1], 'at', 'grace_until')
local grace_until = tonumber(last[2]) or 0
if last[1] and NOW - tonumber(last[1]) > tonumber(ARGV[3]) then grace_until = NOW + tonumber(ARGV[1]) end
redis.call('HSET', KEYS[1], 'at', int(NOW), 'grace_until', int(grace_until))
local function due(key) return redis.call('ZRANGEBYSCORE', key, '-inf', NOW, 'LIMIT', 0, ARGV[2]) end
local lost = {}
if NOW >= grace_until then lost = due(KEYS[2]) end
return {lost, due(KEYS[3]), due(KEYS[4])}
