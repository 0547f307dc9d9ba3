#!lua flags=no-writes
-- needs: groups
-- Whether there is rare work in the maintenance of a group: settled entries to be deleted, consumers without a heartbeat to be removed,
-- dead letters to be examined.
-- KEYS: alive, dead, then of each lane: stream, settled   ARGV: group, consumer
-- returns: 1 if entries are noted as settled, 1 if more consumers exist than have heartbeats, 1 if dead letters exist
local alive, has_settled, has_stale = redis.call('ZCARD', KEYS[1]), 0, 0
for i = 3, #KEYS, 2 do
  -- An error if this group is gone.
  redis.call('XPENDING', KEYS[i], ARGV[1], '-', '+', 1)
  if redis.call('ZCARD', KEYS[i + 1]) > 0 then
    has_settled = 1
  end
  if find_group(KEYS[i], ARGV[1]).consumers > alive then
    has_stale = 1
  end
end
return {has_settled, has_stale, math.min(1, redis.call('XLEN', KEYS[2]))}
