-- Says that this consumer lives. A first beat, and one after a break, begin a new series: see _standing.lua.
-- KEYS: alive, standing   ARGV: consumer, lifetime in ms   returns: the time in ms, and 1 if a series begins
local until_ = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
local time = now()
redis.call('ZADD', KEYS[1], time + ARGV[2], ARGV[1])
if until_ <= time then
  redis.call('ZADD', KEYS[2], time + ARGV[2], ARGV[1])
  return {time, 1}
end
return {time, 0}
