-- Reads the one record that a script is about, and knows how to write it.
--
-- KEYS[1]  the record's name: the only key that a script ever touches
-- ARGV[1]  what is asked, packed
-- ARGV[2]  an answer's bytes, for scripts that store one
--
-- The bytes are those of record.rs. Whatever this version cannot take apart is `unreadable`, and
-- no script treats that as "no record". The head is judged as `record::decode` judges it; an
-- answer only by its presence and version, because walking through it would cost every call.
-- Plain locals, and no tables, because each call pays for what is made here.
local HEAD, HEAD_LEN, VERSION = '>BBc33c16I8I8I8I8HBB', 87, 1
local CLAIMED, DISPATCHED, COMPLETED, TOMBSTONE, UNKNOWN = 99, 100, 107, 116, 117
local LEASE_OVER = 1
-- The highest codes known.
local TOMBSTONE_REASON_MAX, UNKNOWN_REASON_MAX, ANSWER_VERSION = 4, 8, 1

-- `live` is the record as the protocol sees it: an expired one counts as none, though its fields
-- are still here.
local live, unreadable = false, false
local _, state, print, owner, fence, reserved, expires, moment, status, reason
local raw = redis.call('GET', KEYS[1])
if raw then
  local readable = false
  if #raw >= HEAD_LEN and string.byte(raw) == VERSION then
    local has_answer
    _, state, print, owner, fence, reserved, expires, moment, status, reason, has_answer =
      struct.unpack(HEAD, raw)
    live = now < expires
    local bare = has_answer == 0 and #raw == HEAD_LEN
    local answered = has_answer == 1 and string.byte(raw, HEAD_LEN + 1) == ANSWER_VERSION
    if state == DISPATCHED or state == CLAIMED then
      readable = bare and status == 0 and reason == 0
    elseif state == COMPLETED then
      readable = answered and status == 0 and reason == 0
    elseif state == TOMBSTONE then
      readable = bare and reason >= 1 and reason <= TOMBSTONE_REASON_MAX
    elseif state == UNKNOWN then
      readable = (bare or answered) and status == 0 and reason >= 1
        and reason <= UNKNOWN_REASON_MAX
    end
  end
  unreadable = not readable
end

-- The only write of a script, always its last call: it happens wholly or not at all. Numbers
-- become text inside redis.call, which keeps them exact; `tostring` would not.
local function write(state, print, owner, fence, reserved, expires, moment, status, reason, answer)
  local head = struct.pack(HEAD, VERSION, state, print, owner, fence, reserved, expires, moment,
    status, reason, answer == '' and 0 or 1)
  redis.call('SET', KEYS[1], head .. answer, 'PXAT', forget_at(expires))
end
