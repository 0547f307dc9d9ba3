-- Removes consumers that hold nothing and never had a heartbeat. Consumers that had one are removed by claim_abandoned.lua. A slow consumer
-- comes back with its next read.
-- KEYS: alive, the stream of each lane   ARGV: group, consumer, consumers to remove   returns: how many were removed
local streams = {unpack(KEYS, 2)}
local function holds_any(consumer)
  for _, stream in ipairs(streams) do
    if #redis.call('XPENDING', stream, ARGV[1], '-', '+', 1, consumer) > 0 then
      return true
    end
  end
  return false
end

local removed = 0
for i = 3, #ARGV do
  if not redis.call('ZSCORE', KEYS[1], ARGV[i]) and not holds_any(ARGV[i]) then
    for _, stream in ipairs(streams) do
      redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], ARGV[i])
    end
    removed = removed + 1
  end
end
return removed
