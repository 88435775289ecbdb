-- The fence: whether a claim still holds its task. False once a later claim or a cancel has replaced it. What a worker
-- writes is compared in all three, inside the script that writes it.
local function holds(task, run_id, epoch, token)
  local now = redis.call('HMGET', task, 'run_id', 'epoch', 'token')
  return now[1] == run_id and now[2] == epoch and now[3] == token
end

