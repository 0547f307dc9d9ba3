-- Removes this consumer from the group, unless entries are pending under its name: XGROUP DELCONSUMER would drop them. Then its
-- heartbeat ends now, and others may claim them.
-- KEYS: stream, alive, standing, maintenance   ARGV: group, consumer
-- returns: how many entries it holds that were not released; of very many, the first five hundred are looked at
if redis.call('HGET', KEYS[4], 'leader') == ARGV[2] then
  redis.call('HDEL', KEYS[4], 'leader', 'until')
end
redis.call('ZREM', KEYS[3], ARGV[2])
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 500, ARGV[2])
if #pending == 0 then
  redis.call('ZREM', KEYS[2], ARGV[2])
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
else
  redis.call('ZADD', KEYS[2], 0, ARGV[2])
end
local held = 0
for _, entry in ipairs(pending) do
  if not is_released(entry) then
    held = held + 1
  end
end
return held
