-- Looks up entries that this consumer holds, in runs, because most entries of one call follow each other in its pending list. The
-- more entries the last run has answered for, the longer is the next one.
local function holdings(stream, group, consumer, most)
  local known, answered = {}, 0
  -- The pending record of an entry that this consumer holds, or false for any other.
  return function(id)
    if known[id] == nil then
      local run = math.min(math.max(10, math.min(3 * answered, 100)), most)
      for _, pending in ipairs(redis.call('XPENDING', stream, group, id, '+', run, consumer)) do
        known[pending[1]] = pending
      end
      known[id] = known[id] or false
      answered = 0
    end
    answered = answered + 1
    return known[id]
  end
end
