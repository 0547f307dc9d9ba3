-- needs: lists, padded
-- Finishes entries: acks them, and deletes them unless other groups may still have to read them, so that with one group the length of
-- the stream is the backlog. Entries that are kept for other groups are noted as settled. trim.lua deletes them when the last group has
-- finished them. An entry that is neither pending nor noted has left the pending list without an ack, see sweep.lua.
local function finish(stream, settled, group, ids)
  local is_only_group = #redis.call('XINFO', 'GROUPS', stream) == 1
  local acked = redis.call('XACK', stream, group, unpack(ids))
  if is_only_group then
    redis.call('XDEL', stream, unpack(ids))
    return acked
  end
  local scored = {}
  for _, id in ipairs(ids) do
    append(scored, 0, padded(id))
  end
  redis.call('ZADD', settled, unpack(scored))
  return acked
end
