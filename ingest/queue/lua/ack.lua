-- KEYS: stream   ARGV: group, entry IDs   returns: how many were pending
return finish(KEYS[1], ARGV[1], {unpack(ARGV, 2)})
