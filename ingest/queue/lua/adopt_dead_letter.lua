-- needs: lists, order_of, erased, count_seen
-- Adds a dead letter of a former partition, unless the record shows that it was added before. Dead letters of erased orders are not added.
-- KEYS: dead, dead seen, erased, record of the move
-- ARGV: its count (see _seen.lua, empty: seen once), fields
-- returns: 1 if it was added, 0 if it can be deleted in the former partition
local fields = {unpack(ARGV, 2)}
if redis.call('EXISTS', KEYS[4]) == 1 or is_erased(KEYS[3], order_of(fields)) then
  return 0
end
note_seen(KEYS[2], redis.call('XADD', KEYS[1], '*', unpack(fields)) .. (ARGV[1] == '' and '' or ' ' .. ARGV[1]), fields)
redis.call('SET', KEYS[4], '', 'EX', record_seconds)
return 1
