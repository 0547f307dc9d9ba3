-- Whether a producer's batch was added before. A producer sends one batch at a time: the number of its last one is enough.
local function was_added()
  return redis.call('GET', KEYS[2]) == ARGV[3]
end

-- Adds the first order of a new batch, and remembers the batch; true if the batch is new.
local function add_first(...)
  redis.call('SET', KEYS[2], ARGV[3], 'EX', 600)
  redis.call('XADD', KEYS[1], '*', ...)
  return true
end

