-- The time, from the only clock that all gateways share, in microseconds. A double holds it
-- exactly until the year 2255.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Redis forgets by the millisecond, the protocol by the microsecond: rounded up here, and
-- checked to the microsecond when a record is read.
local function forget_at(until_when)
  return math.ceil(until_when / 1000)
end
