-- Records the partitions of a queue, unless this or a later change is recorded already. The same step closes the plain queue, whose keys are
-- in the slot of the record, or opens it if it is the only partition again.
-- KEYS: record, clock, stream, express and retry set of the plain queue
-- ARGV: partitions, former numbers of partitions (separated by commas), generation
-- returns: the recorded partitions, former numbers and generation
local recorded = redis.call('HMGET', KEYS[1], 'partitions', 'former', 'generation')
if recorded[1] and tonumber(recorded[3]) >= tonumber(ARGV[3]) then
  return recorded
end
local partitions, former = ARGV[1], ARGV[2]
-- A queue that existed before its record has one partition.
if not recorded[1] and partitions ~= '1' and former == '' and redis.call('EXISTS', KEYS[3], KEYS[4], KEYS[5]) > 0 then
  former = '1'
end
if partitions == '1' then
  redis.call('HDEL', KEYS[2], 'closed')
  redis.call('HSET', KEYS[2], 'opened', ARGV[3])
else
  redis.call('HSET', KEYS[2], 'closed', ARGV[3])
end
redis.call('HSET', KEYS[1], 'partitions', partitions, 'former', former, 'generation', ARGV[3])
return {partitions, former, ARGV[3]}
