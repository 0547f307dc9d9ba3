-- Finishes the entries that this consumer still owns. One that it does not own comes again: another has reclaimed it, it has left the
-- pending list, or its ID is another entry's since a failover went to a server that is behind.
-- KEYS: stream, settled   ARGV: group, consumer, entry IDs   returns: how many were finished
local held = holdings(KEYS[1], ARGV[1], ARGV[2], #ARGV - 2)
local owned = {}
for i = 3, #ARGV do
  local pending = held(ARGV[i])
  if pending and not is_released(pending) then
    owned[#owned + 1] = ARGV[i]
  end
end
return #owned > 0 and finish(KEYS[1], KEYS[2], ARGV[1], owned) or 0
