#!lua flags=allow-oom
-- needs: lists, seen
-- Deletes dead letters that are in their current partition. A later change may move them here again.
-- KEYS: dead, dead seen, dead moved   ARGV: entry IDs
for _, id in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if entry then
    local named = by_name(entry[2])
    forget_seen(KEYS[2], id, named)
    if named.ingest_moved_from then
      redis.call('HDEL', KEYS[3], named.ingest_moved_from)
    end
    redis.call('XDEL', KEYS[1], id)
  end
end
