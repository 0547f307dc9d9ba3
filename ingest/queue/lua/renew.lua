-- needs: lists, released, held
-- Renews the lease of the entries that this consumer still owns. The delivery count stays as it is. An entry without an owner (another
-- consumer has finished it, or its stream was deleted) is neither renewed nor reported, because no other consumer holds it. The same
-- applies to an entry that was released just before.
-- KEYS: stream   ARGV: group, consumer, entry IDs   returns: the IDs that another consumer owns
local held = holdings(KEYS[1], ARGV[1], ARGV[2], #ARGV - 2)
local command, lost = {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0}, {}
for i = 3, #ARGV do
  local pending = held(ARGV[i]) or redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if pending and not is_released(pending) then
    append(pending[2] == ARGV[2] and command or lost, ARGV[i])
  end
end
if #command > 5 then
  append(command, 'JUSTID')
  redis.call(unpack(command))
end
return lost
