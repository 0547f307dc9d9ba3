-- Removes consumers that never had a heartbeat, hold nothing and have asked for nothing for too long; those that had one are
-- claim_dead.lua's. One that is only slow comes back with its next read.
-- KEYS: stream, alive   ARGV: group, this consumer, idle ms   returns: how many were removed
local removed = 0
for _, facts in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local consumer = {}
  for i = 1, #facts, 2 do
    consumer[facts[i]] = facts[i + 1]
  end
  local is_silent = consumer.pending == 0 and consumer.idle > tonumber(ARGV[3]) and consumer.name ~= ARGV[2]
  if is_silent and not redis.call('ZSCORE', KEYS[2], consumer.name) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    removed = removed + 1
  end
end
return removed
