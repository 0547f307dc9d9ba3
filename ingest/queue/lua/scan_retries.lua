-- One page of what waits for its next attempt, in no order: the orders alone, as documents may be large. Changes nothing. What has no due
-- time has just been moved, or will never be.
-- KEYS: retry, retry entries   ARGV: the cursor, 0 at the beginning, most entries, unless Redis gives more at a time
-- returns: the cursor to go on with (0: the end is reached), for each entry the order that it names (nothing, if none)
local cursor, most = ARGV[1], tonumber(ARGV[2])
local orders, examined, size = {}, 0, 0
repeat
  local reply = redis.call('HSCAN', KEYS[2], cursor, 'COUNT', 10)
  cursor = reply[1]
  for i = 1, #reply[2], 2 do
    local name, packed = reply[2][i], reply[2][i + 1]
    examined, size = examined + 1, size + #packed
    if redis.call('ZSCORE', KEYS[1], name) then
      orders[#orders + 1] = order_of(waiting_fields(packed) or {})
    end
  end
until cursor == '0' or examined >= most or size > 2 ^ 20
return {cursor, orders}
