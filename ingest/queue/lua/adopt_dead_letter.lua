-- needs: lists, order_of, erased
-- Adds a dead letter of a former partition, unless the record shows that it was added before. Dead letters of erased orders are not added.
-- KEYS: dead, erased, record of the move   ARGV: fields   returns: 1 if it was added, 0 if it can be deleted in the former partition
if redis.call('EXISTS', KEYS[3]) == 1 or is_erased(KEYS[2], order_of(ARGV)) then
  return 0
end
redis.call('XADD', KEYS[1], '*', unpack(ARGV))
redis.call('SET', KEYS[3], '', 'EX', record_seconds)
return 1
