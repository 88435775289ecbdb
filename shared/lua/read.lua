-- What stands in a task's record at one moment. A transaction would do the same, and a Redis that is full refuses those.
-- KEYS  1 task  2 runs  3 large
-- ARGV  fields of the large ones
-- Returns {fields of the task, ids of its runs, values of the large fields}
return {redis.call('HGETALL', KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1), redis.call('HMGET', KEYS[3], unpack(ARGV))}
