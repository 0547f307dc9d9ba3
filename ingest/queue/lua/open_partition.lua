-- Lets producers add entries to the queue of a partition. Documents that it accepts from now on are later than those that an order's former
-- partition has accepted, although another server's clock may be behind. A repeated call changes nothing.
-- KEYS: clock, pushed
-- ARGV: latest document of the former partitions (microseconds), then if the layout is recorded: its generation, its number of partitions.
--   Producers that have divided their orders by another number are rejected from then on
-- returns: 1
local time = redis.call('TIME')
if tonumber(ARGV[1]) > (tonumber(redis.call('GET', KEYS[2])) or 0) then
  redis.call('SET', KEYS[2], ARGV[1])
end
redis.call('HDEL', KEYS[1], 'closed')
if not ARGV[2] then
  redis.call('HDEL', KEYS[1], 'divided_by')
  return 1
end
local opened, divided_by = unpack(redis.call('HMGET', KEYS[1], 'opened', 'divided_by'))
redis.call('HSET', KEYS[1], 'opened', math.max(tonumber(opened) or 0, tonumber(ARGV[2])))
if divided_by ~= ARGV[3] then
  redis.call('HSET', KEYS[1], 'divided_by', ARGV[3], 'divided_at', string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000)))
end
return 1
