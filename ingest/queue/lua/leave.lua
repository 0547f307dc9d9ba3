-- Removes this consumer from the group, unless entries are pending under its name: XGROUP DELCONSUMER would drop them. Then its
-- heartbeat ends now, and others may take over.
-- KEYS: stream, alive, standing   ARGV: group, consumer   returns: how many entries it holds that were not given back
redis.call('ZREM', KEYS[3], ARGV[2])
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000, ARGV[2])
if #pending == 0 then
  redis.call('ZREM', KEYS[2], ARGV[2])
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
else
  redis.call('ZADD', KEYS[2], 0, ARGV[2])
end
local held = 0
for _, entry in ipairs(pending) do
  if entry[3] < 1e12 then
    held = held + 1
  end
end
return held
