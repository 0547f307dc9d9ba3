-- needs: released, order_of
-- Whether the entry of an order is pending for this consumer. A consumer that has lost, settled or released it may not move it. Neither may
-- it move the entry of another order, which received this ID from a server whose clock is behind. If it owns the entry, its lease is
-- renewed: this write is allowed without memory, and Redis then lets the whole script through.
local function is_owned(stream, group, consumer, id, order)
  local pending = redis.call('XPENDING', stream, group, id, id, 1)
  local owned = #pending == 1 and pending[1][2] == consumer and not is_released(pending[1])
  local entry = owned and redis.call('XRANGE', stream, id, id)[1]
  local named = entry and order_of(entry[2]) or ''
  if named ~= order and named ~= '' then
    return false
  end
  if owned then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
  end
  return owned
end
