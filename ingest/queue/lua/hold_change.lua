#!lua flags=allow-oom
-- Lets one process hold the change of a queue's partitions, or continue to hold it, unless another process holds it.
-- KEYS: record of the partitions   ARGV: holder, for how many ms (0: end the hold), its progress   returns: nil, or the progress of the other process
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holder, held_until, progress = unpack(redis.call('HMGET', KEYS[1], 'holder', 'held_until', 'progress'))
if holder and holder ~= ARGV[1] and tonumber(held_until) > now then
  return progress
end
if ARGV[2] ~= '0' then
  redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'held_until', string.format('%d', now + ARGV[2]), 'progress', ARGV[3])
elseif holder == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'holder', 'held_until', 'progress')
end
