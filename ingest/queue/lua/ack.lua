-- needs: released, held, finish
-- Finishes the entries that this consumer still owns. An entry that it does not own is delivered again: another consumer has reclaimed
-- it, it has left the pending list, or since a failover to a server that is behind another entry has its ID.
-- KEYS: stream, settled   ARGV: group, consumer, entry IDs   returns: how many were finished
local held = holdings(KEYS[1], ARGV[1], ARGV[2], #ARGV - 2)
local owned = {}
for i = 3, #ARGV do
  local pending = held(ARGV[i])
  if pending and not is_released(pending) then
    append(owned, ARGV[i])
  end
end
return #owned > 0 and finish(KEYS[1], KEYS[2], ARGV[1], owned) or 0
