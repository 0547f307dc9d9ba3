#!lua flags=allow-oom
-- needs: now, quota
-- Ends the lease of a process that stops. The other processes receive its share immediately.
-- KEYS: state   ARGV: own contribution, rate, tokens unused
local rate = tonumber(ARGV[2])
withdrawn(ARGV[1], math.floor(now(KEYS[1]) / 1000))
if rate > 0 and state.next then
  redis.call('HSET', KEYS[1], 'next', tonumber(state.next) - tonumber(ARGV[3]) * 1000 / rate)
end
return 1
