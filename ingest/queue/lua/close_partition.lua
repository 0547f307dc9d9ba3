-- Closes the queue of a former partition to producers, unless a later layout has opened it again.
-- KEYS: clock, pushed   ARGV: generation of the layout without this partition
-- returns: when its latest document was accepted, in microseconds
if (tonumber(redis.call('HMGET', KEYS[1], 'opened')[1]) or 0) <= tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'closed', ARGV[1])
end
return redis.call('GET', KEYS[2]) or '0'
