-- One page of dead letters without documents and unknown fields, in either direction. Changes nothing.
-- KEYS: dead   ARGV: XRANGE or XREVRANGE, where the page begins and where it ends at the latest, as that command takes them, most entries
-- returns: the ID to go on after (nothing: the end is reached), for each dead letter its ID and an array of names and values
local command, from, to, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local told = {order_id = 1, reason = 1, error = 1, attempts = 1, dead_at = 1, first_enqueued_at = 1, worker = 1, replays = 1,
  replayed_at = 1, source = 1}
local found, size = {}, 0
while true do
  local count = math.min(10, most - #found)
  local page = redis.call(command, KEYS[1], from, to, 'COUNT', count)
  for _, entry in ipairs(page) do
    local about = {}
    for i = 1, #entry[2], 2 do
      size = size + #entry[2][i + 1]
      if told[entry[2][i]] then
        about[#about + 1] = entry[2][i]
        about[#about + 1] = entry[2][i + 1]
      end
    end
    found[#found + 1] = {entry[1], about}
    from = '(' .. entry[1]
  end
  if #page < count then
    return {'', found}
  end
  if #found >= most or size > 2 ^ 20 then
    return {from, found}
  end
end
