-- Takes over what consumers without a heartbeat hold, and removes those that hold nothing (XGROUP DELCONSUMER would drop it).
-- KEYS: stream, alive, standing   ARGV: group, consumer, most entries   returns: for each entry: ID, fields, deliveries so far
local claimed = {}
if not has_standing(KEYS[2], KEYS[3], ARGV[2]) then
  return claimed
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now())) do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[3] - #claimed, dead)
  for _, entry in ipairs(pending) do
    -- Nothing comes back for an entry that was deleted while pending; claiming has cleared it away.
    local taken = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry[1])[1]
    if taken then
      claimed[#claimed + 1] = {taken[1], taken[2], entry[4] + 1}
    end
  end
  if #pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], dead)
    redis.call('ZREM', KEYS[2], dead)
    redis.call('ZREM', KEYS[3], dead)
  end
  if #claimed == tonumber(ARGV[3]) then
    break
  end
end
return claimed
