-- needs: released, held, results, finish
-- As ack.lua, and adds the results of the finished entries in the same step. After an error in between, entries have results and
-- are not finished, rather than the other way round.
-- KEYS: stream, settled, results   ARGV: group, consumer, age of results in ms, for each entry: ID, events
-- returns: how many were finished
local held = holdings(KEYS[1], ARGV[1], ARGV[2], (#ARGV - 3) / 2)
local owned, events = {}, {}
for i = 4, #ARGV, 2 do
  local pending = held(ARGV[i])
  if pending and not is_released(pending) then
    append(owned, ARGV[i])
    append(events, ARGV[i + 1])
  end
end
if #owned == 0 then
  return 0
end
trim_results(KEYS[3], ARGV[3])
for _, each in ipairs(events) do
  add_results(KEYS[3], each)
end
return finish(KEYS[1], KEYS[2], ARGV[1], owned)
