#!lua flags=allow-oom
-- Sets and deletes controls, and records a new version, by which workers notice the change.
-- KEYS: controls   ARGV: version, how many fields to delete, these fields, then each field to set and its value
local first = 3 + tonumber(ARGV[2])
for i = 3, first - 1 do
  redis.call('HDEL', KEYS[1], ARGV[i])
end
for i = first, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'version', ARGV[1])
