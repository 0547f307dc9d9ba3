-- Whether an order was erased: it becomes neither a retry nor a dead letter any more, and what remains of it is deleted.
local function is_erased(erased, order)
  return order ~= '' and redis.call('ZSCORE', erased, order) ~= false
end
