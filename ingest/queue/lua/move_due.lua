-- Puts scheduled entries whose time has come back into the stream; any number of workers may do so at once.
-- KEYS: stream, retry, retry entries   ARGV: most entries   returns: how many were moved
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now(), 'LIMIT', 0, ARGV[1])
for _, id in ipairs(due) do
  local fields = redis.call('HGET', KEYS[3], id)
  if fields then
    redis.call('XADD', KEYS[1], '*', unpack(cmsgpack.unpack(fields)))
    redis.call('HDEL', KEYS[3], id)
  end
  redis.call('ZREM', KEYS[2], id)
end
return #due
