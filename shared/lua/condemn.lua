-- Take a tree of tasks out of sight, in one step, where all of it ended long ago: from then on each of its tasks is
-- unknown, to submits, updates and wakes too. What else it has is removed piece by piece. Where something happened in it
-- since, it is looked at again when that is long ago.
-- KEYS  1 trees  2 condemned tasks, then for each task of the tree, root first: its record, where its record is kept until
--       the rest is removed, its idempotency key (the record's own key where there is none)
-- ARGV  retention_ms, then each task_id
-- Returns how many tasks were condemned; 0 where the tree stays
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local OVER = {idle = true, success = true, error = true, timeout = true, cancelled = true}
local MEMBERS = 1000 -- that one call gets
local latest, count = 0, (#KEYS - 2) / 3
-- A task that is not among them was submitted since.
if (tonumber(redis.call('HGET', KEYS[3], 'descendants')) or 0) ~= count - 1 then latest = now end
for i = 0, count - 1 do
  local task = redis.call('HMGET', KEYS[3 * i + 3], 'status', 'run_id', 'updated_ms')
  if not task[1] then
    redis.call('ZREM', KEYS[1], ARGV[2])
    return 0
  end
  local over = OVER[task[1]] and (task[2] or '') == ''
  latest = math.max(latest, over and tonumber(task[3]) or now)
end
if latest > now - tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], string.format('%d', latest), ARGV[2])
  return 0
end
local members = {}
for i = 0, count - 1 do
  local record, kept, once = KEYS[3 * i + 3], KEYS[3 * i + 4], KEYS[3 * i + 5]
  if once ~= record then redis.call('DEL', once) end
  redis.call('RENAME', record, kept)
  members[#members + 1], members[#members + 2] = now, ARGV[i + 2]
  if #members == 2 * MEMBERS or i == count - 1 then
    redis.call('ZADD', KEYS[2], unpack(members))
    members = {}
  end
end
redis.call('ZREM', KEYS[1], ARGV[2])
return count
