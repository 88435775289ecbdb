-- Note how an attempt to deliver ended. It is refused where it took longer than its lease and another one has begun.
-- KEYS  1 deliveries that are due  2 the delivery  3 deliveries that were given up
-- ARGV  task_id/run_id  number of the attempt  status ('delivered' | 'pending': once more | 'failed')  what went wrong
--       ms until the next attempt
-- Returns whether it was noted
if redis.call('HGET', KEYS[2], 'tries') ~= ARGV[2] or redis.call('HGET', KEYS[2], 'status') ~= 'pending' then return 0 end
redis.call('HSET', KEYS[2], 'status', ARGV[3], 'error', ARGV[4], 'updated_ms', int(NOW))
if ARGV[3] == 'pending' then
  local next_ms = int(NOW + ARGV[5])
  redis.call('HSET', KEYS[2], 'next_ms', next_ms)
  redis.call('ZADD', KEYS[1], next_ms, ARGV[1])
  return 1
end
redis.call('HDEL', KEYS[2], 'facts', 'next_ms')
redis.call('ZREM', KEYS[1], ARGV[1])
if ARGV[3] == 'failed' then redis.call('ZADD', KEYS[3], NOW, ARGV[1]) end
return 1
