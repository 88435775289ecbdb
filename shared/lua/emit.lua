-- Put events of a running agent into its task's stream, under its claim.
-- ARGV  run_id  epoch  token, then type, data, …
-- Returns {'emitted'} or {'refused'}
if not holds(TASK, ARGV[1], ARGV[2], ARGV[3]) then return {'refused'} end
for i = 4, #ARGV, 2 do emit(EVENTS, ARGV[i], ARGV[1], ARGV[i + 1]) end
return {'emitted'}
