#!lua flags=allow-oom
-- Deletes dead letters permanently. The record keeps the result for a call that is sent again after a lost reply.
-- KEYS: dead, record of the call (none in a step of a job)   ARGV: entry IDs   returns: how many were deleted
local done = KEYS[2] and redis.call('GET', KEYS[2])
if done then
  return tonumber(done)
end
local dropped = redis.call('XDEL', KEYS[1], unpack(ARGV))
if dropped > 0 and KEYS[2] then
  redis.call('SET', KEYS[2], dropped, 'EX', record_seconds)
end
return dropped
