-- What this consumer holds, asked for in runs: of the entries of one call most follow each other in its pending list.
local run = 10
local function holdings(stream, group, consumer, most)
  local known = {}
  -- The pending record of an entry that this consumer holds; false for any other.
  return function(id)
    if known[id] == nil then
      for _, pending in ipairs(redis.call('XPENDING', stream, group, id, '+', math.min(run, most), consumer)) do
        known[pending[1]] = pending
      end
      known[id] = known[id] or false
    end
    return known[id]
  end
end
