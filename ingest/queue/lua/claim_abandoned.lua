-- Claims what was released, and what consumers hold whose heartbeat has ended; removes those of them that hold nothing (XGROUP
-- DELCONSUMER would drop it). Costs next to nothing where there is neither, as every process asks once a second.
-- KEYS: stream, alive, standing, clock, released   ARGV: group, consumer, most entries, most dead consumers
-- returns: the released ones and those of the dead, for each entry: ID, fields, deliveries so far
local most = tonumber(ARGV[3])
local released, orphaned = {}, {}

-- Nothing comes back for an entry that was deleted while pending; claiming has cleared it away.
local function claim(list, entries)
  local counts, command = {}, {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0}
  for _, pending in ipairs(entries) do
    counts[pending[1]] = pending[4] + 1
    command[#command + 1] = pending[1]
  end
  for _, taken in ipairs(#entries > 0 and redis.call(unpack(command)) or {}) do
    list[#list + 1] = {taken[1], taken[2], counts[taken[1]]}
  end
end

-- An error, if the group is gone; what follows then meets no other.
redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1)
local noted, found = redis.call('ZRANGE', KEYS[5], 0, most - 1), {}
for _, id in ipairs(noted) do
  local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], id, id, 1)
  if not pending.err and #pending == 1 and is_released(pending[1]) then
    found[#found + 1] = pending[1]
  end
end
if #noted > 0 then
  claim(released, found)
  redis.call('ZREM', KEYS[5], unpack(noted))
end

local time = now(KEYS[4])
if #released < most and has_standing(KEYS[2], KEYS[3], ARGV[2], time) then
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', time, 'LIMIT', 0, ARGV[4])) do
    local wanted = most - #released - #orphaned
    if wanted <= 0 then
      break
    end
    local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', wanted, dead)
    claim(orphaned, pending)
    if #pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], dead)
      redis.call('ZREM', KEYS[2], dead)
      redis.call('ZREM', KEYS[3], dead)
    end
  end
end
return {released, orphaned}
