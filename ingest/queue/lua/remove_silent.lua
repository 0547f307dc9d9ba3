-- Removes consumers that hold nothing and have asked for nothing for too long: every process has a name of its own, and
-- those that were killed would pile up for ever. One that is only slow comes back with its next read.
-- KEYS: stream   ARGV: group, this consumer, idle ms   returns: how many were removed
local removed = 0
for _, facts in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local consumer = {}
  for i = 1, #facts, 2 do
    consumer[facts[i]] = facts[i + 1]
  end
  if consumer.pending == 0 and consumer.idle > tonumber(ARGV[3]) and consumer.name ~= ARGV[2] then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    removed = removed + 1
  end
end
return removed
