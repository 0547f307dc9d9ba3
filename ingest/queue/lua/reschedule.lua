-- Moves one owned entry to the retry set. Sent twice, it moves nothing: the entry is no longer pending, and the receipt tells that
-- it was moved. An entry that is gone without one is lost (a failover, a flush), but this consumer has it: it waits all the same.
-- An error on the way (an ACL, a key of another type) leaves it in both places rather than in none.
-- KEYS: stream, settled, clock, receipt, retry, retry entries   ARGV: group, consumer, entry ID, delay in ms, fields
-- returns: 1 if moved, 2 if it was gone and waits now
local owned = is_owned(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if not owned and (redis.call('EXISTS', KEYS[4]) == 1 or not is_gone(KEYS[1], ARGV[1], ARGV[3])) then
  return 0
end
redis.call('HSET', KEYS[6], ARGV[3], cmsgpack.pack({unpack(ARGV, 5)}))
redis.call('ZADD', KEYS[5], now(KEYS[3]) + tonumber(ARGV[4]), ARGV[3])
if owned then
  finish(KEYS[1], KEYS[2], ARGV[1], {ARGV[3]})
end
redis.call('SET', KEYS[4], '', 'EX', 600)
return owned and 1 or 2
