-- Releases owned entries: claimable at once, and the delivery that did not happen is not counted. Sent twice, it takes one off
-- the count once: what was released is nobody's, or idle since 1970.
-- KEYS: stream, released   ARGV: group, consumer, entry IDs   returns: how many are released, the IDs of those that are gone
local released, gone = 0, {}
for i = 3, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  if #pending == 1 and pending[1][2] == ARGV[2] then
    if not is_released(pending[1]) then
      give_back(KEYS[1], ARGV[1], ARGV[2], pending[1])
    end
    redis.call('ZADD', KEYS[2], 0, ARGV[i])
    released = released + 1
  elseif #pending == 0 and #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then
    gone[#gone + 1] = ARGV[i]
  end
end
return {released, gone}
