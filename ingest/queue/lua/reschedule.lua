-- Moves one pending entry to the retry set. The ack is the guard: sent twice, or after somebody else has
-- finished the entry, it moves nothing.
-- KEYS: stream, retry, retry entries   ARGV: group, entry ID, delay in ms, fields   returns: 1 if moved
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
local now = redis.call('TIME')
local due = now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ARGV[3])
redis.call('HSET', KEYS[3], ARGV[2], cmsgpack.pack({unpack(ARGV, 4)}))
redis.call('ZADD', KEYS[2], due, ARGV[2])
delete_finished(KEYS[1], {ARGV[2]})
return 1
