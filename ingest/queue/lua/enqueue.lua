-- Takes in one batch of a producer: all of it, or none, and never twice: it leaves a receipt.
-- KEYS: stream, receipt   ARGV: backlog limit (0: none), producer, batch, order IDs
-- returns: how many were added; 0 if this batch was taken in before; -1 if it would pass the limit
local limit = tonumber(ARGV[1])
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
if limit > 0 and redis.call('XLEN', KEYS[1]) + #ARGV - 3 > limit then
  return -1
end
redis.call('SET', KEYS[2], '', 'EX', 600)
for i = 4, #ARGV do
  redis.call('XADD', KEYS[1], '*', 'order_id', ARGV[i])
end
return #ARGV - 3
