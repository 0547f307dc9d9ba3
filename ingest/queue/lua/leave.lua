-- Removes this consumer from the group, unless it still holds something: XGROUP DELCONSUMER would drop it.
-- KEYS: stream   ARGV: group, consumer   returns: how many entries it still holds
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if #pending == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return #pending
