#!lua flags=allow-oom
-- needs: lists, now, others, entry_fields, wide, order_of, erased, waiting_fields, invalid_waiting
-- Moves entries of the retry set that are due to the express lane. Content that is not an entry becomes a dead letter, so that it does not
-- stop the others. Entries of erased orders are deleted.
-- KEYS: express, retry, retry entries, clock, dead, retry announced, stream, erased   ARGV: group, consumer, most entries
-- returns: how many were moved or deleted, 1 if more are due and were left for the next call because these were large
local time = now(KEYS[4])

local is_shared = has_other_groups(KEYS[1], KEYS[7])
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', time, 'LIMIT', 0, ARGV[3])
local moved, size = 0, 0
while moved < #due and size <= 2 ^ 20 do
  moved = moved + 1
  local id = due[moved]
  local packed = redis.call('HGET', KEYS[3], id)
  if packed then
    local fields = waiting_fields(packed)
    if not fields then
      redis.call('XADD', KEYS[5], '*', unpack(invalid_waiting(packed, time)))
    elseif not is_erased(KEYS[8], order_of(fields)) then
      redis.call('XADD', KEYS[1], '*', unpack(narrow(addressed(is_shared, ARGV[1], fields))))
    end
    redis.call('HDEL', KEYS[3], id)
    size = size + #packed
  end
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZREM', KEYS[6], id)
end
-- An older release moves entries without removing this. The oldest ones are read.
for _, id in ipairs(redis.call('ZRANGE', KEYS[6], 0, 9)) do
  if not redis.call('ZSCORE', KEYS[2], id) then
    redis.call('ZREM', KEYS[6], id)
  end
end
return {moved, moved < #due and 1 or 0}
