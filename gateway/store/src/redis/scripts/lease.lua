-- For the scripts that keep a reservation alive or give it back.

-- Whether the owner's call may still be running.
local running = live and (state == CLAIMED or state == DISPATCHED
  or (state == UNKNOWN and reason == LEASE_OVER))

-- The owner's lease from now on. An unfinished record outlives its lease by the whole retention,
-- so that an ended lease is seen and never vanishes.
local function extend(lease, retention)
  write(DISPATCHED, print, owner, fence, reserved, now + lease + retention, now + lease, 0, 0, '')
end
