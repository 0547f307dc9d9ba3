-- Releases owned entries: claimable at once, and the delivery that did not happen is not counted. Sent twice, it takes one off
-- the count once: what was released is nobody's, or idle since 1970.
-- KEYS: stream, released   ARGV: group, consumer, entry IDs   returns: how many are released, the IDs of those that are gone
local held = holdings(KEYS[1], ARGV[1], ARGV[2], #ARGV - 2)
local released, gone, scored = {}, {}, {}
for i = 3, #ARGV do
  local pending = held(ARGV[i]) or redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if pending and pending[2] == ARGV[2] then
    if not is_released(pending) then
      released[#released + 1] = pending
    end
    scored[#scored + 1] = 0
    scored[#scored + 1] = ARGV[i]
  elseif not pending and #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then
    gone[#gone + 1] = ARGV[i]
  end
end
give_back(KEYS[1], ARGV[1], ARGV[2], released)
if #scored > 0 then
  redis.call('ZADD', KEYS[2], unpack(scored))
end
return {#scored / 2, gone}
