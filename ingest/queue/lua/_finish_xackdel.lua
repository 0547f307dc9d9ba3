-- As _finish.lua, where the server acks and deletes in one step (Redis 8.2): 1 is acked and deleted, 2 acked while another
-- group still needs the entry, -1 was not pending.
local function finish(stream, settled, group, ids)
  local acked, scored = 0, {}
  for i, result in ipairs(redis.call('XACKDEL', stream, group, 'ACKED', 'IDS', #ids, unpack(ids))) do
    if result > 0 then
      acked = acked + 1
    end
    if result == 2 then
      scored[#scored + 1] = 0
      scored[#scored + 1] = padded(ids[i])
    end
  end
  if #scored > 0 then
    redis.call('ZADD', settled, unpack(scored))
  end
  return acked
end
