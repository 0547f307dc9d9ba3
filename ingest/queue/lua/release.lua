-- Gives owned entries back: claimable at once, and the delivery that did not happen is not counted. Sent twice, it takes one
-- off the count once: what was given back is nobody's, or idle since 1970.
-- KEYS: stream   ARGV: group, consumer, entry IDs   returns: how many are given back
local released = 0
for i = 3, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
  if #pending == 1 then
    give_back(KEYS[1], ARGV[1], ARGV[2], pending[1])
    released = released + 1
  end
end
return released
