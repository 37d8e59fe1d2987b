-- Gives a reservation back. Answers 1 released: there is no record of it any more, 0 superseded:
-- somebody else's, or finished.
local my_owner, has_fence, my_fence = struct.unpack('>c16BI8', ARGV[1])

if unreadable then
  return 0
end
if not live then
  return 1
end
if running and owner == my_owner and (has_fence == 0 or fence == my_fence) then
  redis.call('DEL', KEYS[1])
  return 1
end
return 0
