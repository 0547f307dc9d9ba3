#!lua flags=allow-oom
-- needs: now
-- Pauses all processes that share a quota. Of several pauses the longest holds.
-- KEYS: state   ARGV: ms (0: only read)   returns: ms until the end of the pause
local time = now(KEYS[1])
local until_ = tonumber(redis.call('HGET', KEYS[1], 'paused')) or 0
if time + ARGV[1] > until_ and tonumber(ARGV[1]) > 0 then
  until_ = time + ARGV[1]
  redis.call('HSET', KEYS[1], 'paused', until_, 'latest', time)
end
return math.max(0, math.ceil(until_ - time))
