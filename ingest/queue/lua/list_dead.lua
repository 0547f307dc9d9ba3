-- One page of dead letters, the newest first, without documents and unknown fields. Changes nothing.
-- KEYS: dead   ARGV: the newest and the oldest ID of the page, as XREVRANGE takes them, most entries
-- returns: the ID to go on before (nothing: the end is reached), for each dead letter its ID and an array of names and values
local before, oldest, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local told = {order_id = 1, reason = 1, error = 1, attempts = 1, dead_at = 1, first_enqueued_at = 1, worker = 1, replays = 1,
  replayed_at = 1, source = 1}
local found, size = {}, 0
while true do
  local count = math.min(10, most - #found)
  local page = redis.call('XREVRANGE', KEYS[1], before, oldest, 'COUNT', count)
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
    before = '(' .. entry[1]
  end
  if #page < count then
    return {'', found}
  end
  if #found >= most or size > 2 ^ 20 then
    return {before, found}
  end
end
