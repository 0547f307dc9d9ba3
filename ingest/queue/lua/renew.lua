-- Renews the lease of the entries that this consumer still owns; the delivery count stays as it is. An entry that nobody
-- owns (finished by another, or gone with a deleted stream) is not renewed, and not reported: there is nobody to yield to. Nor
-- is one that was given back (idle since 1970, or without an owner) by a release that this renewal has followed too closely.
-- KEYS: stream   ARGV: group, consumer, entry IDs   returns: the IDs that another consumer owns
local owned, lost = {}, {}
for i = 3, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  if #pending == 1 and not is_released(pending[1]) then
    local list = pending[1][2] == ARGV[2] and owned or lost
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
