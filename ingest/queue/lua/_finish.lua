-- Put before every script that finishes entries: acks, and deletes, so that the stream's length is the backlog; but nothing
-- that other groups may still have to read. That is noted as settled, and deleted by trim.lua once the last of them has
-- finished it: an entry that is neither pending nor noted has left the pending list without an ack, see sweep.lua.
local function finish(stream, settled, group, ids)
  local acked = redis.call('XACK', stream, group, unpack(ids))
  if #redis.call('XINFO', 'GROUPS', stream) == 1 then
    redis.call('XDEL', stream, unpack(ids))
  else
    local scored = {}
    for _, id in ipairs(ids) do
      scored[#scored + 1] = 0
      scored[#scored + 1] = padded(id)
    end
    redis.call('ZADD', settled, unpack(scored))
  end
  return acked
end
