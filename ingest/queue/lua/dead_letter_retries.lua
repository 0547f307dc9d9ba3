#!lua flags=allow-oom
-- needs: lists, now, entry_fields, wide, order_of, erased, waiting_fields, invalid_waiting
-- Moves entries from the retry set to the dead letters, at an operator's request. Sent twice, it moves nothing the second time. Content that is
-- not an entry becomes the dead letter that it would become when due. Entries of erased orders are deleted.
-- KEYS: retry, retry entries, retry announced, dead, clock, erased   ARGV: who does it, names of entries   returns: how many were moved
local time = now(KEYS[5])

local function dead_letter(fields)
  local letter, was = {}, by_name(fields)
  for i = 1, #fields, 2 do
    if not fields_of_dead_letters[fields[i]] then
      append(letter, fields[i], fields[i + 1])
    end
  end
  local attempts = was.attempt and was.attempt:find('^%d+$') and #was.attempt <= 6 and tonumber(was.attempt) - 1 or 0
  local error = 'dead-lettered by hand' .. (was.retry_error and '; the last attempt: ' .. was.retry_error or '')
  append(letter, 'reason', 'attempts_exhausted', 'error', error, 'attempts', string.format('%d', math.max(0, attempts)),
    'worker', ARGV[1], 'dead_at', string.format('%d', time))
  if was.enqueued_at then
    append(letter, 'first_enqueued_at', was.enqueued_at)
  end
  return letter
end

local moved = 0
for i = 2, #ARGV do
  local packed = redis.call('HGET', KEYS[2], ARGV[i])
  local fields = packed and waiting_fields(packed)
  if packed then
    -- Added before it is deleted, so that an error in between leaves it in both places.
    if not fields then
      redis.call('XADD', KEYS[4], '*', unpack(invalid_waiting(packed, time)))
      moved = moved + 1
    elseif not is_erased(KEYS[6], order_of(fields)) then
      redis.call('XADD', KEYS[4], '*', unpack(narrow(dead_letter(fields))))
      moved = moved + 1
    end
    redis.call('HDEL', KEYS[2], ARGV[i])
    redis.call('ZREM', KEYS[1], ARGV[i])
    redis.call('ZREM', KEYS[3], ARGV[i])
  end
end
return moved
