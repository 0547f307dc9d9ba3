#!lua flags=no-writes
-- needs: lists, dead_summary
-- The dead letters with these IDs, without documents and unknown fields.
-- KEYS: dead, dead seen   ARGV: how many names of unknown fields that are returned nevertheless, these names, IDs
-- returns: for each dead letter its `dead_summary`
local found, names = {}, tonumber(ARGV[1])
for i = 2, names + 1 do
  listed_fields[ARGV[i]] = 1
end
for i = names + 2, #ARGV do
  for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])) do
    append(found, (dead_summary(KEYS[2], entry)))
  end
end
return found
