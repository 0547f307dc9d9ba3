-- Lets producers add entries to the queue of a partition. A repeated call changes nothing.
-- KEYS: clock   ARGV: generation of the layout with this partition
redis.call('HDEL', KEYS[1], 'closed')
redis.call('HSET', KEYS[1], 'opened', ARGV[1])
return 1
