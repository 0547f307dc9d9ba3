-- Moves one owned entry to the dead letters, in the order and with the guard of reschedule.lua.
-- KEYS: stream, dead   ARGV: group, consumer, entry ID, fields   returns: 1 if moved
if not is_owned(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then
  return 0
end
local fields = {unpack(ARGV, 4)}
fields[#fields + 1] = 'dead_at'
fields[#fields + 1] = string.format('%d', now())
redis.call('XADD', KEYS[2], '*', unpack(fields))
finish(KEYS[1], ARGV[1], {ARGV[3]})
return 1
