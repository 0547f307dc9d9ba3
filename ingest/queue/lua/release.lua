-- Gives entries back: claimable at once, and the delivery that did not happen is not counted.
-- KEYS: stream   ARGV: group, consumer, idle ms that makes them claimable, entry IDs   returns: how many
local released = 0
for i = 4, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
  if #pending == 1 then
    local count = math.max(0, pending[1][4] - 1)
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'IDLE', ARGV[3], 'RETRYCOUNT', count, 'JUSTID')
    released = released + 1
  end
end
return released
