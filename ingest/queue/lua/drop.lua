#!lua flags=allow-oom
-- needs: lists, seen
-- Deletes dead letters permanently. The record keeps the result for a call that is sent again after a lost reply.
-- KEYS: dead, dead seen, record of the call (none in a step of a job)   ARGV: entry IDs   returns: how many were deleted
local done = KEYS[3] and redis.call('GET', KEYS[3])
if done then
  return tonumber(done)
end
local dropped = 0
for _, id in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if entry then
    forget_seen(KEYS[2], id, by_name(entry[2]))
    dropped = dropped + redis.call('XDEL', KEYS[1], id)
  end
end
if dropped > 0 and KEYS[3] then
  redis.call('SET', KEYS[3], dropped, 'EX', record_seconds)
end
return dropped
