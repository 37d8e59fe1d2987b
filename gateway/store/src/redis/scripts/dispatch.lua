-- Announces that the first byte is about to leave. Answers 1 go, 0 lost: nothing may be sent.
local my_owner, my_fence, lease, retention = struct.unpack('>c16I8I8I8', ARGV[1])

if unreadable or not live or owner ~= my_owner or fence ~= my_fence then
  return 0
end
if state == CLAIMED then
  extend(lease, retention)
  return 1
end
-- Its first answer was lost; the record already says what it should.
if state == DISPATCHED then
  return 1
end
return 0
