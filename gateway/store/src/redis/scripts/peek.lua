-- Shows the record and changes nothing. Answers {now, record}, or {now} when there is none.
if raw and (unreadable or live) then
  return {now, raw}
end
return {now}
