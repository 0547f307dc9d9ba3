-- Lets producers add entries to the queue of a partition. Documents that it accepts from now on are later than those that an order's former
-- partition has accepted, although another server's clock may be behind. A repeated call changes nothing.
-- KEYS: clock, pushed   ARGV: latest document of the former partitions (microseconds), generation of the layout if it is recorded
-- returns: 1
local time = redis.call('TIME')
redis.call('HDEL', KEYS[1], 'closed')
if tonumber(ARGV[1]) > (tonumber(redis.call('GET', KEYS[2])) or 0) then
  redis.call('SET', KEYS[2], ARGV[1])
end
if ARGV[2] and tonumber(ARGV[2]) > (tonumber(redis.call('HMGET', KEYS[1], 'opened')[1]) or 0) then
  redis.call('HSET', KEYS[1], 'opened', ARGV[2], 'opened_at', string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000)))
end
return 1
