-- Takes up entries that are pending for this consumer although it does not know them: left by its predecessor
-- of the same name, or delivered in a reply that got lost.
-- KEYS: stream   ARGV: group, consumer, most entries, IDs that it knows
-- returns: for each entry: ID, fields, deliveries so far
local known = {}
for i = 4, #ARGV do
  known[ARGV[i]] = true
end
local claimed = {}
local most = tonumber(ARGV[3])
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', most + #ARGV, ARGV[2])
for _, entry in ipairs(pending) do
  if not known[entry[1]] and #claimed < most then
    local taken = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry[1])[1]
    if taken then
      claimed[#claimed + 1] = {taken[1], taken[2], entry[4] + 1}
    end
  end
end
return claimed
