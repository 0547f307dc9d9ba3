-- The dead letters that have these IDs of their own; of large ones, without documents and unknown fields. Changes nothing.
-- KEYS: dead   ARGV: bytes of an entry that is told whole, IDs   returns: for each dead letter what `dead_summary` does
local found = {}
for i = 2, #ARGV do
  for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])) do
    found[#found + 1] = dead_summary(entry, tonumber(ARGV[1]))
  end
end
return found
