-- Moves one owned entry to the retry set. Sent twice, it moves nothing: the entry is no longer pending. An error on the way
-- (an ACL, a key of another type) leaves it in both places rather than in none.
-- KEYS: stream, retry, retry entries   ARGV: group, consumer, entry ID, delay in ms, fields   returns: 1 if moved
if not is_owned(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then
  return 0
end
redis.call('HSET', KEYS[3], ARGV[3], cmsgpack.pack({unpack(ARGV, 5)}))
redis.call('ZADD', KEYS[2], now() + tonumber(ARGV[4]), ARGV[3])
finish(KEYS[1], ARGV[1], {ARGV[3]})
return 1
