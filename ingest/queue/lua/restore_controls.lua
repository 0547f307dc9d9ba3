#!lua flags=allow-oom
-- Writes controls again that Redis has lost, unless there are others. Returns whether they were written.
-- KEYS: controls   ARGV: each field and its value
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
for i = 1, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 1
