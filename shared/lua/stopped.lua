-- The code of a cancelled run has really ended: say when, and free its slot. Its task's time and usage are told only as
-- long as no later run has times and a usage of its own; what it used after that one was made counts beside that.
-- ARGV  task_id  run_id  epoch  token  only_expired ('1': refuse while the lease is good)  usage of the task ('' = leave)
--       of runs that a later one followed: what the caller saw that they used late, and that with this run's
-- Returns {'stopped'}, {'late', usage noted when the later run was made, what such runs used late by now} where the caller
--         is to tell that part, or {'refused'} where the run was not cancelled under this claim
local task_id, run_id, epoch, token, only_expired, usage, late_seen, late = unpack(ARGV)
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
