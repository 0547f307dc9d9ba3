#!lua flags=allow-oom
-- needs: lists, seen
-- Deletes dead letters whose orders were stored since. A dead letter whose order was seen again since it was read stays.
-- KEYS: dead, dead seen   ARGV: for each dead letter: ID, how often it was seen   returns: how many were deleted
local settled = 0
for i = 1, #ARGV, 2 do
  local id = ARGV[i]
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  local named = entry and by_name(entry[2])
  if entry and (seen_again(KEYS[2], id, named) or '1') == ARGV[i + 1] then
    forget_seen(KEYS[2], id, named)
    settled = settled + redis.call('XDEL', KEYS[1], id)
  end
end
return settled
