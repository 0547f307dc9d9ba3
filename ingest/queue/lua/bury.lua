-- Moves one pending entry to the dead letters, guarded as in reschedule.lua.
-- KEYS: stream, dead   ARGV: group, entry ID, fields   returns: 1 if moved
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
local now = redis.call('TIME')
local fields = {unpack(ARGV, 3)}
fields[#fields + 1] = 'dead_at'
fields[#fields + 1] = string.format('%d', now[1] * 1000 + math.floor(now[2] / 1000))
redis.call('XADD', KEYS[2], '*', unpack(fields))
delete_finished(KEYS[1], {ARGV[2]})
return 1
