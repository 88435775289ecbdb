-- Hide a tree of tasks in one step, if all of it ended long ago: from then on each of its tasks is unknown, to submits,
-- updates and wakes too. Everything else that the tree has is removed later, piece by piece. If something happened in
-- the tree meanwhile, the tree stays and is listed by that moment.
-- KEYS  1 trees  2 condemned tasks, then for each task of the tree, root first: its record, where its record is kept until
--       the rest is removed, its idempotency key (the record's own key where there is none)
-- ARGV  retention_ms, then each task_id
-- Returns how many tasks were condemned; 0 where the tree stays
local OVER = {idle = true, success = true, error = true, timeout = true, cancelled = true}
local MEMBERS = 1000 -- of one ZADD: Lua cannot unpack many more
local latest, count = 0, (#KEYS - 2) / 3
-- More tasks than the caller names: one was submitted meanwhile.
if (tonumber(redis.call('HGET', KEYS[3], 'descendants')) or 0) ~= count - 1 then latest = NOW end
for i = 0, count - 1 do
  local task = redis.call('HMGET', KEYS[3 * i + 3], 'status', 'run_id', 'updated_ms')
  if not task[1] then
    redis.call('ZREM', KEYS[1], ARGV[2])
    return 0
  end
  local over = OVER[task[1]] and (task[2] or '') == ''
  latest = math.max(latest, over and tonumber(task[3]) or NOW)
end
if latest > NOW - tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], int(latest), ARGV[2])
  return 0
end
local members = {}
for i = 0, count - 1 do
  local record, kept, once = KEYS[3 * i + 3], KEYS[3 * i + 4], KEYS[3 * i + 5]
  if once ~= record then redis.call('DEL', once) end
  redis.call('RENAME', record, kept)
  members[#members + 1], members[#members + 2] = NOW, ARGV[i + 2]
  if #members == 2 * MEMBERS or i == count - 1 then
    redis.call('ZADD', KEYS[2], unpack(members))
    members = {}
  end
end
redis.call('ZREM', KEYS[1], ARGV[2])
return count
