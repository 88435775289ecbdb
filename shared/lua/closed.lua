-- All below these tasks is closed, as a walk found that began at a moment. A task that was cancelled again since then,
-- and may have had new children, stays listed: whoever cancelled it walks once more, or a sweeper does.
-- KEYS  1 tasks whose descendants are to be closed
-- ARGV  when the walk began, then the tasks
-- Returns nothing
for i = 2, #ARGV do
  local noted = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if noted and tonumber(noted) <= tonumber(ARGV[1]) then redis.call('ZREM', KEYS[1], ARGV[i]) end
end
return {}
