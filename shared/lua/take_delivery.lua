-- Take a due delivery for one attempt: nobody else gets it until the lease ends.
-- KEYS  1 deliveries that are due  2 the delivery  3 the task, where its webhook stands
-- ARGV  task_id/run_id  lease_ms
-- Returns {number of the attempt, Unix ms at which the task ended, id, facts, URL}, or {} where it is not due
local due = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not due or tonumber(due) > NOW then return {} end
local url = redis.call('HGET', KEYS[3], 'webhook')
if not url or redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return {}
end
redis.call('ZADD', KEYS[1], int(NOW + ARGV[2]), ARGV[1])
local attempt = redis.call('HINCRBY', KEYS[2], 'tries', 1)
local delivery = redis.call('HMGET', KEYS[2], 'created_ms', 'id', 'facts')
return {attempt, delivery[1], delivery[2], delivery[3], url}
