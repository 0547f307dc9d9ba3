-- needs: lists, order_of, erased, count_seen
-- Adds a dead letter of a former partition, unless it was added before. Dead letters of erased orders are not added. A process that moves
-- dead letters for an earlier layout is rejected, however late its call arrives.
-- KEYS: dead, dead seen, dead moved, erased, clock
-- ARGV: generation of the layout, identity of the dead letter, its count (see _seen.lua, empty: seen once), fields
-- returns: 1 if it was added, 0 if it can be deleted in the former partition, -1 if it is rejected
local opened, closed = unpack(redis.call('HMGET', KEYS[5], 'opened', 'closed'))
if math.max(tonumber(opened) or 0, tonumber(closed) or 0) > tonumber(ARGV[1]) then
  return -1
end
local fields = {unpack(ARGV, 4)}
if redis.call('HGET', KEYS[3], ARGV[2]) or is_erased(KEYS[4], order_of(fields)) then
  return 0
end
note_seen(KEYS[2], redis.call('XADD', KEYS[1], '*', unpack(fields)) .. (ARGV[3] == '' and '' or ' ' .. ARGV[3]), fields)
redis.call('HSET', KEYS[3], ARGV[2], '')
return 1
