-- As _added_once.lua, where the stream itself remembers what a producer has added (Redis 8.6): the first entry stands for
-- the whole batch. It cannot be asked without adding: a batch that was added needs room before it is recognized.
local function was_added()
  return false
end

-- Added a second time, the entry changes nothing, which only the length tells.
local function add_first(...)
  local before = redis.call('XLEN', KEYS[1])
  local id = redis.call('XADD', KEYS[1], 'IDMP', ARGV[2], ARGV[3], '*', ...)
  return redis.call('XLEN', KEYS[1]) > before and id
end

