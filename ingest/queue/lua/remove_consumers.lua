-- Removes consumers that have no heartbeat and hold nothing; those that had one are claim_abandoned.lua's. One that is only slow
-- comes back with its next read.
-- KEYS: stream, alive   ARGV: group, consumers   returns: how many were removed
local removed = 0
for i = 2, #ARGV do
  local holds = #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[i]) > 0
  if not holds and not redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[i])
    removed = removed + 1
  end
end
return removed
