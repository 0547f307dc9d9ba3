-- Takes over entries that nobody has renewed for too long.
-- KEYS: stream   ARGV: group, consumer, idle ms, cursor, most entries
-- returns: next cursor, then for each entry: ID, fields, deliveries so far
local found = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], 'COUNT', ARGV[5])
local claimed = {}
for _, entry in ipairs(found[2]) do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], entry[1], entry[1], 1)
  claimed[#claimed + 1] = {entry[1], entry[2], pending[1][4]}
end
return {found[1], claimed}
