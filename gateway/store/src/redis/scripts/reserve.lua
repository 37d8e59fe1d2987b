-- Asks for the right to execute. One script, because comparing the fingerprint, the owner and
-- the lease and then writing must not be interleaved with anybody else's.
--
-- Runs without `allow-oom`: a full Redis takes no new reservations, but finishes running ones
-- (and replays, by peek.lua).
--
-- Answers {1, fence, now} proceed, {2} mismatch, {3, running for, lease left} busy,
-- {4, now, record} settled: the record says how, {5} its lease ended just now, {6} unreadable.
local my_print, my_owner, phase, hold, lease, retention = struct.unpack('>c33c16BBI8I8', ARGV[1])

if unreadable then
  return {6}
end
if live then
  -- Before everything else, so that a reused key is never told "busy".
  if print ~= my_print then
    return {2}
  end
  if state == CLAIMED or state == DISPATCHED then
    if owner == my_owner then
      return {1, fence, now}
    end
    if now < moment then
      return {3, math.max(now - reserved, 0), moment - now}
    end
    if state == DISPATCHED and hold == 1 then
      write(UNKNOWN, print, owner, fence, reserved, now + retention, now, 0, LEASE_OVER, '')
      return {5}
    end
  elseif state ~= UNKNOWN or hold == 1 then
    return {4, now, raw}
  end
end
-- Granted. Also an expired record's fence must not be repeated.
local my_fence = math.max(fence and fence + 1 or 0, now)
write(phase, my_print, my_owner, my_fence, now, now + lease + retention, now + lease, 0, 0, '')
return {1, my_fence, now}
