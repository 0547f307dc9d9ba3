-- needs: order_of, erased, waiting_fields
-- Deletes entries of erased orders from the retry set. The scripts that move entries delete those that have moved since. An entry of another
-- order, which may have received the name by now, stays.
-- KEYS: retry, retry entries, retry announced, erased   ARGV: names of entries   returns: how many were deleted
local removed = 0
for _, name in ipairs(ARGV) do
  local packed = redis.call('HGET', KEYS[2], name)
  local fields = packed and waiting_fields(packed)
  if fields and is_erased(KEYS[4], order_of(fields)) then
    redis.call('HDEL', KEYS[2], name)
    redis.call('ZREM', KEYS[1], name)
    redis.call('ZREM', KEYS[3], name)
    removed = removed + 1
  end
end
return removed
