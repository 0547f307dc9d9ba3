-- As enqueue.lua, where the stream itself remembers what a producer has added (Redis 8.6): the first entry of a batch stands for
-- the whole. Added a second time, it changes nothing, which only the length tells.
-- KEYS: stream, receipt (unused)   ARGV: backlog limit (0: none), producer, batch, order IDs
-- returns: how many were added; 0 if this batch was taken in before; -1 if it would pass the limit
local limit = tonumber(ARGV[1])
local before = redis.call('XLEN', KEYS[1])
-- Before the entry, which could not be taken back: its name would stay. A batch that filled the backlog itself, and whose reply
-- was lost, so waits for room before it learns that it is in.
if limit > 0 and before + #ARGV - 3 > limit then
  return -1
end
redis.call('XADD', KEYS[1], 'IDMP', ARGV[2], ARGV[3], '*', 'order_id', ARGV[4])
if redis.call('XLEN', KEYS[1]) == before then
  return 0
end
for i = 5, #ARGV do
  redis.call('XADD', KEYS[1], '*', 'order_id', ARGV[i])
end
return #ARGV - 3
