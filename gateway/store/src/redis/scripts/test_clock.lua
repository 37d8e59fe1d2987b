-- In place of clock.lua when a test drives the time: the last argument says what time it is, and
-- Redis itself forgets nothing (2100-01-01), so that the script's own check is what is tested.
local now = tonumber(ARGV[#ARGV])

local function forget_at(_)
  return 4102444800000
end
