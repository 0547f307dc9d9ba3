-- Whether a producer's batch was added before. A producer sends one batch at a time: the number of its last one is enough.
-- An older number is that of a batch that the producer has sent again since, or given up, and that was late on its way.
local function was_added()
  return tonumber(redis.call('GET', KEYS[2]) or -1) >= tonumber(ARGV[3])
end

-- Adds the first order of a new batch, and remembers the batch; the entry's ID if the batch is new.
local function add_first(...)
  redis.call('SET', KEYS[2], ARGV[3], 'EX', 600)
  return redis.call('XADD', KEYS[1], '*', ...)
end

