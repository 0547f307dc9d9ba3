-- Takes over entries that nobody has renewed for too long; who has a heartbeat but no standing takes only those given back.
-- KEYS: stream, alive, standing
-- ARGV: group, consumer, idle ms, idle ms of what was given back, cursor, most entries
-- returns: next cursor, then for each entry: ID, fields, deliveries so far
local idle = ARGV[3]
if redis.call('ZSCORE', KEYS[2], ARGV[2]) and not has_standing(KEYS[2], KEYS[3], ARGV[2]) then
  idle = ARGV[4]
end
local found = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], idle, ARGV[5], 'COUNT', ARGV[6])
local claimed = {}
for _, entry in ipairs(found[2]) do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], entry[1], entry[1], 1)
  claimed[#claimed + 1] = {entry[1], entry[2], pending[1][4]}
end
return {found[1], claimed}
