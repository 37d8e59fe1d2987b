-- Puts back a reservation that was lost while its call still runs. Answers 1 renewed: it was
-- there after all, 0 superseded, 2 restored, 3 too late.
local my_print, my_owner, my_fence, lease, retention, not_after =
  struct.unpack('>c33c16I8I8I8I8', ARGV[1])

if now > not_after then
  return 3
end
if unreadable then
  return 0
end
if not live then
  write(DISPATCHED, my_print, my_owner, my_fence, now, now + lease + retention, now + lease, 0, 0,
    '')
  return 2
end
if running and owner == my_owner and fence == my_fence then
  extend(lease, retention)
  return 1
end
return 0
