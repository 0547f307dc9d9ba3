-- As ack.lua, and tells in the same step what has become of the orders of the entries that are finished. An error on the way leaves
-- entries that are told and not finished, rather than the other way round.
-- KEYS: stream, settled, results   ARGV: group, consumer, age of results in ms, for each entry: ID, events
-- returns: how many were finished
local held = holdings(KEYS[1], ARGV[1], ARGV[2], (#ARGV - 3) / 2)
local owned, events = {}, {}
for i = 4, #ARGV, 2 do
  local pending = held(ARGV[i])
  if pending and not is_released(pending) then
    owned[#owned + 1] = ARGV[i]
    events[#events + 1] = ARGV[i + 1]
  end
end
if #owned == 0 then
  return 0
end
trim_results(KEYS[3], ARGV[3])
for _, each in ipairs(events) do
  tell(KEYS[3], each)
end
return finish(KEYS[1], KEYS[2], ARGV[1], owned)
