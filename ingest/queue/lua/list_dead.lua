-- One page of dead letters, or of a lane, in either direction; of large ones, without documents and unknown fields. Changes nothing.
-- KEYS: the stream   ARGV: XRANGE or XREVRANGE, where the page begins and where it ends at the latest, as that command takes them, most entries,
-- bytes of an entry that is told whole
-- returns: the ID to go on after (nothing: the end is reached), for each dead letter what `dead_summary` does
local command, from, to, most, told_whole = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local found, size, more = {}, 0, 0
while true do
  local count = math.min(10, most - #found)
  local page = redis.call(command, KEYS[1], from, to, 'COUNT', count)
  for _, entry in ipairs(page) do
    found[#found + 1], more = dead_summary(entry, told_whole)
    size = size + more
    from = '(' .. entry[1]
  end
  if #page < count then
    return {'', found}
  end
  if #found >= most or size > 2 ^ 20 then
    return {from, found}
  end
end
