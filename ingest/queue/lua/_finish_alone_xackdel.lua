-- As _finish_alone.lua, where the server acks and deletes in one step (Redis 8.2): 1 is acked and deleted, -1 was not pending.
local function finish_alone(stream, group, ids)
  local acked = 0
  for _, result in ipairs(redis.call('XACKDEL', stream, group, 'ACKED', 'IDS', #ids, unpack(ids))) do
    if result > 0 then
      acked = acked + 1
    end
  end
  return acked
end
