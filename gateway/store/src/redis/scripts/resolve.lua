-- Settles a key with an unknown end; ARGV[2] is the answer when it was done. Answers {1}
-- resolved, {2} no record, {3, state} it has moved on.
local has_fence, my_fence, done, retention = struct.unpack('>BI8BI8', ARGV[1])

if unreadable then
  -- The operator's way out of bytes that nobody can read.
  if has_fence == 0 and done == 0 then
    redis.call('DEL', KEYS[1])
    return {1}
  end
  return {3, UNKNOWN}
end
if not live then
  return {2}
end
local unsettled = state == UNKNOWN or (state == DISPATCHED and now >= moment)
if not unsettled or (has_fence == 1 and fence ~= my_fence) then
  return {3, state}
end
if done == 0 then
  redis.call('DEL', KEYS[1])
else
  write(COMPLETED, print, owner, fence, reserved, now + retention, now, 0, 0, ARGV[2])
end
return {1}
