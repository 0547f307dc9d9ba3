-- Removes results that are older than `age` ms from the results stream, by nodes of about a hundred. This comes before any other write: it is
-- allowed without memory, and Redis then lets the whole script through.
local function trim_results(results, age)
  local time = redis.call('TIME')
  redis.call('XTRIM', results, 'MINID', '~', string.format('%d', math.max(0, time[1] * 1000 - tonumber(age))))
end

-- Adds results: a MessagePack array of arrays of names and values.
local function add_results(results, events)
  for _, event in ipairs(cmsgpack.unpack(events)) do
    redis.call('XADD', results, '*', unpack(event))
  end
end
