#!lua flags=no-writes
-- needs: lists
-- How many entries a stream has lost since its beginning, finished or deleted.
-- KEYS: stream   returns: a number; nil if there is no such stream, or the server does not return it
local replied, reply = pcall(redis.call, 'XINFO', 'STREAM', KEYS[1])
if not replied or reply.err then
  return nil
end
local about = by_name(reply)
return about['entries-added'] and about['entries-added'] - about['length']
