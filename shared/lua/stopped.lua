-- The code of a cancelled run has really ended: note when, and free its slot. If this is the task's last run, the
-- task's own `stopped_ms` and `usage` are set too. If a later run was made meanwhile, what this one used after that
-- moment is added to the task's `usage_late` instead.
-- ARGV  task_id  run_id  epoch  token  only_expired ('1': refuse while the lease is good)  usage (of the task, '' = leave)
--       late_seen (`usage_late` as the caller read it)  late (its new value; both '' at the first call)
-- Returns {'stopped'}, {'refused'} where the run was not cancelled under this claim, or {'late', usage when the later run
--         was made, `usage_late` now}: the caller computes the new `usage_late` and calls again
local task_id, run_id, epoch, token, only_expired, usage, late_seen, late = unpack(ARGV, 1, 8)
local run = redis.call('HMGET', RUN, 'status', 'epoch', 'token', 'usage_noted', 'stopped_ms')
if run[1] ~= 'cancelled' or run[2] ~= epoch or run[3] ~= token then return {'refused'} end
local lease_until = tonumber(redis.call('ZSCORE', LEASES, member(task_id, run_id)) or '0')
if only_expired == '1' and lease_until > NOW then return {'refused'} end
local is_last, first = redis.call('LINDEX', RUNS, -1) == run_id, not run[5]
if first and not is_last and usage ~= '' and run[4] then
  local by_now = redis.call('HGET', TASK, 'usage_late') or ''
  if late == '' or late_seen ~= by_now then return {'late', run[4], by_now} end
  redis.call('HSET', TASK, 'usage_late', late)
end
unhold(task_id, run_id)
redis.call('HSETNX', RUN, 'stopped_ms', int(NOW))
if is_last then
  if first then redis.call('HSET', TASK, 'stopped_ms', int(NOW)) end
  if usage ~= '' then redis.call('HSET', TASK, 'usage', usage) end
end
return {'stopped'}
