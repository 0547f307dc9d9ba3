-- Renews the lease of the entries that this consumer still owns; the delivery count stays as it is. An entry that no consumer
-- owns (finished by another, or gone with a deleted stream) is not renewed, and not reported: there is no other holder. Nor
-- is one that was released just before this renewal came.
-- KEYS: stream   ARGV: group, consumer, entry IDs   returns: the IDs that another consumer owns
local held = holdings(KEYS[1], ARGV[1], ARGV[2], #ARGV - 2)
local owned, lost = {}, {}
for i = 3, #ARGV do
  local pending = held(ARGV[i]) or redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if pending and not is_released(pending) then
    local list = pending[2] == ARGV[2] and owned or lost
    list[#list + 1] = ARGV[i]
  end
end
if #owned > 0 then
  local command = {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0}
  for _, id in ipairs(owned) do
    command[#command + 1] = id
  end
  command[#command + 1] = 'JUSTID'
  redis.call(unpack(command))
end
return lost
