-- KEYS: stream   ARGV: group, entry IDs   returns: how many were pending
local ids = {unpack(ARGV, 2)}
local acked = redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
if acked > 0 then
  delete_finished(KEYS[1], ids)
end
return acked
