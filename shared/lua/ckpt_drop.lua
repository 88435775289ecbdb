-- Drop whole namespaces of a thread.
-- KEYS 1 … 6 as in the prelude, the state and order of each namespace, and last the task record where a claim fences
-- ARGV 7 … the namespaces
TASK = KEYS[#KEYS]
if refused() then return -1 end
for i = 7, #ARGV do
  local state = KEYS[7 + 2 * (i - 7)]
  local fields = redis.call('HGETALL', state)
  for j = 1, #fields, 2 do
    local kind = string.sub(fields[j], 1, 1)
    if kind == 'b' or kind == 'w' then release(fields[j + 1]) end
  end
  redis.call('DEL', state, KEYS[8 + 2 * (i - 7)])
  redis.call('HDEL', INDEX, 'n' .. ARGV[i])
end
return 0
