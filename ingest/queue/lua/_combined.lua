-- Runs several calls of one script, which is the function `part`, for sources whose calls are made at the same time. An error ends the
-- part that causes it. No part begins after a millisecond, so that Redis can respond to others. The caller sends the rest again.
-- KEYS: the keys of each part   ARGV: how many parts, for each part: how many keys and arguments, then the arguments of each part
-- returns: for each part that has run: a list with its result, or an error

-- Seconds. A script has either os.clock (Redis 7.4, Valkey 8) or a TIME that goes on while it runs (Redis 7.0). Redis 7.2 has neither: there
-- all parts run.
local _, clock = pcall(function() return os.clock end)
local function seconds()
  if type(clock) == 'function' then
    return clock()
  end
  local time = redis.call('TIME')
  return time[1] % 1000 + time[2] / 1000000
end

local parts, replies, began = tonumber(ARGV[1]), {}, seconds()
local last_key, last_argument = 0, 2 * parts + 1
for i = 1, parts do
  if i > 1 and math.abs(seconds() - began) > 0.001 then
    break
  end
  local first_key, first_argument = last_key + 1, last_argument + 1
  last_key, last_argument = last_key + ARGV[2 * i], last_argument + ARGV[2 * i + 1]
  local done, reply = pcall(part, {unpack(KEYS, first_key, last_key)}, {unpack(ARGV, first_argument, last_argument)})
  if done then
    replies[i] = {reply}
  else
    replies[i] = {err = type(reply) == 'table' and reply.err or 'ERR ' .. tostring(reply)}
  end
end
return replies
