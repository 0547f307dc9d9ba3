-- Deletes dead letters permanently. The record keeps the result for a call that is sent again after a lost reply.
-- KEYS: dead, record of the call   ARGV: entry IDs   returns: how many were deleted
local done = redis.call('GET', KEYS[2])
if done then
  return tonumber(done)
end
local dropped = redis.call('XDEL', KEYS[1], unpack(ARGV))
if dropped > 0 then
  redis.call('SET', KEYS[2], dropped, 'EX', record_seconds)
end
return dropped
