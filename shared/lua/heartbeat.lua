-- Renew the claims of one worker process, and note what their tasks have used so far: it would be lost with the worker.
-- A claim that was replaced is not renewed. A cancelled run keeps its lease and its slot until the worker says that its
-- code has stopped; when they run out, that worker is gone.
-- KEYS  1 leases, then for each claim: task, run, slots
-- ARGV  lease_ms, then for each claim: task_id, run_id, epoch, token, usage of the task ('' = leave)
-- Returns for each claim 1, or 0 where it was replaced
local lease_until = int(NOW + tonumber(ARGV[1]))
local held = {}
for i = 1, (#KEYS - 1) / 3 do
  local task, run, slots = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  local task_id, run_id, epoch, token, usage = unpack(ARGV, 5 * i - 3, 5 * i + 1)
  local good = holds(task, run_id, epoch, token)
  held[i] = good and 1 or 0
  if good then
    redis.call('HSET', run, 'lease_until_ms', lease_until)
    if usage ~= '' then redis.call('HSET', task, 'usage', usage) end
  end
  local ended = not good and redis.call('HMGET', run, 'status', 'token')
  if not ended or (ended[1] == 'cancelled' and ended[2] == token) then
    redis.call('ZADD', KEYS[1], 'XX', lease_until, task_id .. '/' .. run_id)
    redis.call('ZADD', slots, 'XX', lease_until, task_id .. '/' .. run_id)
  end
end
return held
