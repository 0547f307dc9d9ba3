-- needs: order_of
-- Whether the entry of an order is gone: it is neither pending for any consumer nor in the stream. A failover or a flush has lost it, or
-- a move has finished it and its reply was lost. An entry of another order received this ID from a server whose clock is behind.
local function is_gone(stream, group, id, order)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if entry then
    return order_of(entry[2]) ~= order
  end
  return #redis.call('XPENDING', stream, group, id, id, 1) == 0
end
