#!lua flags=allow-oom
-- needs: now
-- Reports that this consumer is alive. A first heartbeat, and one after a break, begin a new series, see _standing.lua. If no consumer
-- leads the group's maintenance, this consumer leads for as long as its heartbeats continue.
-- KEYS: alive, standing, clock, maintenance   ARGV: group, consumer, lifetime in ms
-- returns: the time in ms, 1 if a series begins, 1 if this consumer leads, how many consumers have heartbeats, the generation of the
-- partitions at the last change that has opened or closed this queue
local time, own, ahead = now(KEYS[3])
if own + ahead < time then
  -- Redis' clock went back. The queue's clock continues from its last time.
  redis.call('HSET', KEYS[3], 'ahead', time - own, 'noted_at', own)
end
redis.call('HSET', KEYS[3], 'latest', time)

local until_ = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or 0)
redis.call('ZADD', KEYS[1], time + ARGV[3], ARGV[2])
local is_first = until_ <= time
if is_first then
  redis.call('ZADD', KEYS[2], time + ARGV[3], ARGV[2])
end

local leader = redis.call('HMGET', KEYS[4], 'leader', 'until')
local leads = leader[1] == ARGV[2] or (tonumber(leader[2]) or 0) <= time
if leads then
  redis.call('HSET', KEYS[4], 'leader', ARGV[2], 'until', time + ARGV[3])
end
local changes = redis.call('HMGET', KEYS[3], 'closed', 'opened')
local generation = math.max(tonumber(changes[1]) or 0, tonumber(changes[2]) or 0)
return {time, is_first and 1 or 0, leads and 1 or 0, redis.call('ZCARD', KEYS[1]), generation}
