-- Put before every script that finishes entries: acks, and deletes, so that the stream's length is the backlog; but nothing
-- that other groups may still have to read. That goes by trim.lua, once the last of them has finished it.
local function finish(stream, group, ids)
  local acked = redis.call('XACK', stream, group, unpack(ids))
  if acked > 0 and #redis.call('XINFO', 'GROUPS', stream) == 1 then
    redis.call('XDEL', stream, unpack(ids))
  end
  return acked
end
