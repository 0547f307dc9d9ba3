-- needs: lists, order_of, erased
-- Adds a dead letter of a former partition, which is deleted there afterwards. The record makes a repeated call do nothing. Dead letters of
-- erased orders are not added.
-- KEYS: dead, erased, record of the move   ARGV: fields   returns: 1 if it was added
if redis.call('EXISTS', KEYS[3]) == 1 or is_erased(KEYS[2], order_of(ARGV)) then
  return 0
end
redis.call('XADD', KEYS[1], '*', unpack(ARGV))
redis.call('SET', KEYS[3], '', 'EX', record_seconds)
return 1
