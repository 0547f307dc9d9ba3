-- needs: lists
-- Reads both lanes while the express lane has a backlog: first the main lane's share, then the express lane, then more of the main
-- lane if there is room. Does not wait.
-- KEYS: express, stream   ARGV: group, consumer, most entries, the main lane's share of them
-- returns: the entries read from the express lane and from the main lane. For each entry: ID, fields
local count = tonumber(ARGV[3])

-- An error if a group is gone, before anything is delivered.
for _, stream in ipairs(KEYS) do
  redis.call('XPENDING', stream, ARGV[1], '-', '+', 1)
end

local function read(list, stream, most)
  if most <= 0 then
    return
  end
  local reply = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', most, 'STREAMS', stream, '>')
  for _, entry in ipairs(reply and reply[1][2] or {}) do
    append(list, entry)
    count = count - 1
  end
end

local express, main = {}, {}
read(main, KEYS[2], math.min(count, tonumber(ARGV[4])))
read(express, KEYS[1], count)
read(main, KEYS[2], count)
return {express, main}
