-- Tells what has become of orders: adds events to the results stream, and removes those that are too old, by nodes of about a
-- hundred. The trimming comes first: a write that is allowed without memory, after which Redis lets the whole script through.
-- The age is in ms; the events are a MessagePack array of arrays of names and values.
local function trim_results(results, age)
  local time = redis.call('TIME')
  redis.call('XTRIM', results, 'MINID', '~', string.format('%d', math.max(0, time[1] * 1000 - tonumber(age))))
end

local function tell(results, events)
  for _, event in ipairs(cmsgpack.unpack(events)) do
    redis.call('XADD', results, '*', unpack(event))
  end
end
