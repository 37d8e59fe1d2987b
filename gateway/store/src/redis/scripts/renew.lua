-- Keeps a reservation alive. Answers 1 renewed, 0 superseded, 2 gone.
local my_owner, my_fence, lease, retention = struct.unpack('>c16I8I8I8', ARGV[1])

if unreadable then
  return 0
end
if not live then
  return 2
end
if running and owner == my_owner and fence == my_fence then
  extend(lease, retention)
  return 1
end
return 0
