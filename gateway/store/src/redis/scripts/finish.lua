-- Records how an execution ended; ARGV[2] is the answer, or empty. Answers 1 stored, 0
-- superseded: nothing was stored, 2 restored: the record had been lost.
local my_print, my_owner, my_fence, ending, ending_status, ending_reason, retention =
  struct.unpack('>c33c16I8BHBI8', ARGV[1])

if unreadable then
  return 0
end
if live then
  if owner ~= my_owner or fence ~= my_fence then
    return 0
  end
  -- Finished by this owner already: its first answer was lost.
  if state == COMPLETED or state == TOMBSTONE then
    return 1
  end
end
-- A late answer still counts: it settles an unknown record of the same owner.
write(ending, my_print, my_owner, my_fence, live and reserved or now, now + retention, now,
  ending_status, ending_reason, ARGV[2])
return live and 1 or 2
