#!lua flags=no-writes
-- needs: lists, dead_summary
-- The dead letters with these IDs, without documents and unknown fields.
-- KEYS: dead   ARGV: IDs   returns: for each dead letter its `dead_summary`
local found = {}
for _, id in ipairs(ARGV) do
  for _, entry in ipairs(redis.call('XRANGE', KEYS[1], id, id)) do
    append(found, (dead_summary(entry)))
  end
end
return found
