-- Delete a thread. KEYS 1 threads, then every key of the thread, the index first
-- ARGV 1 thread id 2 how many fields the index had when the keys were computed
-- Returns 1, or 0: a namespace was added meanwhile, compute the keys anew.
if redis.call('HLEN', KEYS[2]) ~= tonumber(ARGV[2]) then return 0 end
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
redis.call('SREM', KEYS[1], ARGV[1])
return 1
