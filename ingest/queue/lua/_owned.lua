-- Whether the entry of an order is pending for this consumer: one that has lost it, settled it or released it may not move it; nor one
-- that holds another order's entry, which was given its ID by a server whose clock is behind. If so, its lease is renewed: a write that
-- is allowed without memory, after which Redis lets the whole script through.
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
