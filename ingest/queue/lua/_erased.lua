-- Whether an order was erased. Its entry becomes neither a retry nor a dead letter.
local function is_erased(erased, order)
  return order ~= '' and redis.call('ZSCORE', erased, order) ~= false
end
