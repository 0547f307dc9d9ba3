#!lua flags=no-writes
-- needs: lists, order_of, waiting_fields
-- One page of the retry set, in no order: only the order IDs, because documents may be large. An entry without a due time has just been moved,
-- or will never be.
-- KEYS: retry, retry entries   ARGV: the cursor (0: at the beginning), most entries, unless Redis returns more together
-- returns: the next page's cursor (0: there is none), for each entry the order that it names, or an empty text
local cursor, most = ARGV[1], tonumber(ARGV[2])
local orders, examined, size = {}, 0, 0
repeat
  local reply = redis.call('HSCAN', KEYS[2], cursor, 'COUNT', 10)
  cursor = reply[1]
  for i = 1, #reply[2], 2 do
    local name, packed = reply[2][i], reply[2][i + 1]
    examined, size = examined + 1, size + #packed
    if redis.call('ZSCORE', KEYS[1], name) then
      append(orders, order_of(waiting_fields(packed) or {}))
    end
  end
until cursor == '0' or examined >= most or size > 2 ^ 20
return {cursor, orders}
