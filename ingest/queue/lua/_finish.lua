-- Put before every script that finishes entries: acks them, and deletes them unless other groups may still have to read them. What
-- is kept for those is noted as settled, and deleted by trim.lua once the last of them has finished it: an entry that is neither
-- pending nor noted has left the pending list without an ack, see sweep.lua.
local function finish(stream, settled, group, ids)
  if #redis.call('XINFO', 'GROUPS', stream) == 1 then
    return finish_alone(stream, group, ids)
  end
  local acked = redis.call('XACK', stream, group, unpack(ids))
  local scored = {}
  for _, id in ipairs(ids) do
    scored[#scored + 1] = 0
    scored[#scored + 1] = padded(id)
  end
  redis.call('ZADD', settled, unpack(scored))
  return acked
end
