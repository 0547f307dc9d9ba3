-- Claims entries that are pending for this consumer although it does not know them: left by its predecessor of the same name, which
-- may have died of one, so that this delivery counts; or delivered in a reply that got lost, which was counted then.
-- KEYS: stream   ARGV: group, consumer, most entries, 1 if it counts, IDs that it knows
-- returns: for each entry: ID, fields, deliveries so far
local known = {}
for i = 5, #ARGV do
  known[ARGV[i]] = true
end
local claimed = {}
local most = tonumber(ARGV[3])
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', most + #ARGV - 4, ARGV[2])
for _, entry in ipairs(pending) do
  if not known[entry[1]] and #claimed < most then
    local count = entry[4] + ((ARGV[4] == '1' or is_released(entry)) and 1 or 0)
    local taken = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry[1], 'RETRYCOUNT', count)[1]
    if taken then
      claimed[#claimed + 1] = {taken[1], taken[2], count}
    end
  end
end
return claimed
