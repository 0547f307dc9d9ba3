-- needs: lists, released, held
-- Claims entries that are pending for this consumer although it does not hold them. Either its predecessor of the same name has left them,
-- and may have died of one, so that this delivery counts. Or a lost reply has delivered them, which was counted then.
-- KEYS: stream   ARGV: group, consumer, 1 if it counts, entry IDs   returns: for each entry: ID, fields, deliveries so far
local held = holdings(KEYS[1], ARGV[1], ARGV[2], #ARGV - 3)
local claimed = {}
for i = 4, #ARGV do
  local pending = held(ARGV[i])
  if pending then
    local count = pending[4] + ((ARGV[3] == '1' or is_released(pending)) and 1 or 0)
    local taken = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'RETRYCOUNT', count)[1]
    if taken then
      append(claimed, {taken[1], taken[2], count})
    end
  end
end
return claimed
