-- Copy a thread. KEYS 1 threads, then (from, to)…, the pair of the indexes first
-- ARGV 1 the new thread's id 2 how many fields the index had when the keys were computed
-- Returns 1, or 0: a namespace was added meanwhile, compute the keys anew.
if redis.call('HLEN', KEYS[2]) ~= tonumber(ARGV[2]) then return 0 end
for i = 2, #KEYS, 2 do redis.call('COPY', KEYS[i], KEYS[i + 1], 'REPLACE') end
redis.call('SADD', KEYS[1], ARGV[1])
return 1
