-- Return a running run to pending: its worker gives it back, it gets another attempt after an error, or its lease ran
-- out. Errors and losses are counted from the last new checkpoint on and bounded by the task's own max_attempts or the
-- one that is given; all losses of a run together are bounded too. A worker's repeated call gets the same reply.
-- ARGV  task_id  run_id  how ('given_back' | 'retried' | 'lost')  epoch  token  ring_again_ms  usage ('' = leave)
--       max_attempts  max_losses
--       of a retry ('' otherwise): error_type  error_json (the type as JSON)  error_message  least_ms (to wait at least)
--       first_ms and longest_ms (of the pauses)  part (of a pause that is waited)
--       then type, data, … of the events that go before
-- Returns {'released', ms to wait}, {'refused'}, or {'exhausted'} where no attempt is left (nothing is changed then)
local task_id, run_id, how, epoch, token, ring_again_ms, usage, max_attempts, max_losses, error_type, error_json,
  error_message, least_ms, first_ms, longest_ms, part = unpack(ARGV, 1, 16)

-- Count one more error or loss. Returns how many there were since the last new checkpoint, or nil: one too many.
local function count_failure()
  local run = redis.call('HMGET', RUN, 'failures', 'saves', 'losses')
  local task = redis.call('HMGET', TASK, 'saves', 'max_attempts')
  local saves, most = task[1] or '0', tonumber(task[2]) or tonumber(max_attempts)
  local failures = (run[2] == saves and tonumber(run[1]) or 0) + 1
  local losses = (tonumber(run[3]) or 0) + (how == 'lost' and 1 or 0)
  if failures >= most or losses >= math.max(tonumber(max_losses), most) then return nil end
  redis.call('HSET', RUN, 'failures', int(failures), 'saves', saves, 'losses', int(losses))
  redis.call('HINCRBY', RUN, 'attempt', 1)
  redis.call('HINCRBY', TASK, 'attempt', 1)
  return failures
end

local run = redis.call('HMGET', RUN, 'status', 'lease_until_ms', 'released', 'not_before_ms')
if how ~= 'lost' and run[1] == 'pending' and run[3] == token then
  return {'released', math.max((tonumber(run[4]) or 0) - NOW, 0)}
end
if not holds(TASK, run_id, epoch, token) or run[1] ~= 'running' then return {'refused'} end
if how == 'lost' and tonumber(run[2]) > NOW then return {'refused'} end
local pause, bell_at, kind, data = 0, NOW + tonumber(ring_again_ms), 'run.' .. how, '{}'
if how ~= 'given_back' then
  local failures = count_failure()
  if not failures then return {'exhausted'} end
  if how == 'retried' then
    pause = math.min(tonumber(first_ms) * 2 ^ (failures - 1), tonumber(longest_ms)) * tonumber(part)
    pause = math.ceil(math.max(pause, tonumber(least_ms)))
    bell_at = NOW + pause
    data = '{"error_type":' .. error_json .. ',"seconds":' .. string.format('%.1f', pause / 1000) .. '}'
    redis.call('HSET', RUN, 'not_before_ms', int(bell_at), 'error_type', error_type, 'error_message', error_message)
    redis.call('HSET', TASK, 'waits_for', 'retry')
  end
end
if redis.call('HGET', RUN, 'kind') == 'grade' then
  move(TASK, 'give back', 'running', 'grading')
else
  move(TASK, 'give back', 'pending', 'queued')
  count_work(run[2])
end
if usage ~= '' then redis.call('HSET', TASK, 'usage', usage) end
redis.call('HINCRBY', TASK, 'epoch', 1)
redis.call('HSET', TASK, 'token', '')
-- A retry's bell is rung by sweepers, as overdue ones are; -1, since this first ring is not an overdue one.
redis.call('HSET', RUN, 'status', 'pending', 'token', '', 'released', how == 'lost' and '' or token,
  'lease_until_ms', '0', 'rings', how == 'retried' and '-1' or '0')
unhold(task_id, run_id)
redis.call('ZADD', RING_AT, bell_at, member(task_id, run_id))
for i = 17, #ARGV, 2 do emit(EVENTS, ARGV[i], run_id, ARGV[i + 1]) end
emit(EVENTS, kind, run_id, data)
return {'released', pause}
