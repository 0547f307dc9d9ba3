#!lua flags=no-writes
-- needs: lists, dead_summary
-- One page of the entries of a stream, in either direction, without documents and unknown fields.
-- KEYS: the stream, dead seen   ARGV: XRANGE or XREVRANGE, where the page begins and where it ends at the latest, as that command takes them, most entries,
-- names of unknown fields that are returned nevertheless
-- returns: where the next page begins (empty: there is none), for each entry its `dead_summary`
local command, from, to, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local found, size, more = {}, 0, 0
for i = 5, #ARGV do
  listed_fields[ARGV[i]] = 1
end
while true do
  local count = math.min(10, most - #found)
  local page = redis.call(command, KEYS[1], from, to, 'COUNT', count)
  for _, entry in ipairs(page) do
    found[#found + 1], more = dead_summary(KEYS[2], entry)
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
