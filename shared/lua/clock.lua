-- The clock of all scripts: Redis' own, in Unix ms.
local clock = redis.call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- A large number as text: Lua would write 1.7e+12.
local function int(n) return string.format('%d', n) end
