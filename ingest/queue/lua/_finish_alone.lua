-- Acks and deletes entries of a stream with one group, so that its length is the backlog.
local function finish_alone(stream, group, ids)
  local acked = redis.call('XACK', stream, group, unpack(ids))
  redis.call('XDEL', stream, unpack(ids))
  return acked
end
