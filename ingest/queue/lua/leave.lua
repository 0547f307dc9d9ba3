-- needs: released
-- Removes this consumer from the group unless entries are pending under its name, which XGROUP DELCONSUMER would drop. With such entries,
-- its heartbeat ends now, and other consumers may claim them.
-- KEYS: alive, standing, maintenance, the stream of each lane   ARGV: group, consumer
-- returns: how many entries it holds that were not released, counting the first five hundred of each lane
if redis.call('HGET', KEYS[3], 'leader') == ARGV[2] then
  redis.call('HDEL', KEYS[3], 'leader', 'until')
end
redis.call('ZREM', KEYS[2], ARGV[2])
local streams = {unpack(KEYS, 4)}
local found, held = 0, 0
for _, stream in ipairs(streams) do
  for _, entry in ipairs(redis.call('XPENDING', stream, ARGV[1], '-', '+', 500, ARGV[2])) do
    found = found + 1
    held = held + (is_released(entry) and 0 or 1)
  end
end
if found == 0 then
  redis.call('ZREM', KEYS[1], ARGV[2])
  for _, stream in ipairs(streams) do
    redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], ARGV[2])
  end
else
  redis.call('ZADD', KEYS[1], 0, ARGV[2])
end
return held
