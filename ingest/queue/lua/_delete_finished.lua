-- Put before every script that finishes entries. An entry is deleted with its ack, so that the stream's
-- length is the backlog; but not while other groups may still have to read it.
local function delete_finished(stream, ids)
  if #redis.call('XINFO', 'GROUPS', stream) == 1 then
    redis.call('XDEL', stream, unpack(ids))
  end
end
