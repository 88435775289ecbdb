-- Which leases ran out, and which bells are overdue. When nobody swept for half a lease (Redis was away, or no worker
-- was up), holders get one full lease to renew before any is declared lost.
-- KEYS  1 last sweep  2 leases  3 ring_at
-- ARGV  lease_ms  page
-- Returns {members with an expired lease}, {members with an overdue bell}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local last = redis.call('HMGET', KEYS[1], 'at', 'grace_until')
local grace_until = tonumber(last[2]) or 0
if last[1] and now - tonumber(last[1]) > tonumber(ARGV[1]) / 2 then grace_until = now + tonumber(ARGV[1]) end
redis.call('HSET', KEYS[1], 'at', string.format('%d', now), 'grace_until', string.format('%d', grace_until))
local lost = {}
if now >= grace_until then lost = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[2]) end
return {lost, redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[2])}
