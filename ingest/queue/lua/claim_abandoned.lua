-- needs: lists, now, released, standing
-- Claims released entries, and the entries of consumers whose heartbeat has ended. Removes those consumers that hold nothing, because XGROUP
-- DELCONSUMER would drop what they hold. Without either it costs next to nothing, because every process calls it every few seconds.
-- KEYS: alive, standing, clock, then of each lane: stream, released
-- ARGV: group, consumer, most entries, most dead consumers
-- returns: the released entries and the entries of dead consumers, of each lane. For each entry: ID, fields, deliveries so far
local group, consumer, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lanes = {}
for i = 4, #KEYS, 2 do
  append(lanes, {stream = KEYS[i], released = KEYS[i + 1]})
end
local released, orphaned = {{}, {}}, {{}, {}}

-- Redis returns nothing for an entry that was deleted while pending, and has removed its record.
local function claim(list, stream, entries)
  local counts, command = {}, {'XCLAIM', stream, group, consumer, 0}
  for _, pending in ipairs(entries) do
    counts[pending[1]] = pending[4] + 1
    append(command, pending[1])
  end
  for _, taken in ipairs(#entries > 0 and redis.call(unpack(command)) or {}) do
    append(list, {taken[1], taken[2], counts[taken[1]]})
    wanted = wanted - 1
  end
end

local function claim_released(number, lane)
  local noted, found = redis.call('ZRANGE', lane.released, 0, wanted - 1), {}
  for _, id in ipairs(noted) do
    local pending = redis.pcall('XPENDING', lane.stream, group, id, id, 1)
    if not pending.err and #pending == 1 and is_released(pending[1]) then
      append(found, pending[1])
    end
  end
  if #noted > 0 then
    claim(released[number], lane.stream, found)
    redis.call('ZREM', lane.released, unpack(noted))
  end
end

-- Whether a dead consumer may be removed, because it holds nothing in any lane.
local function claim_held_by(dead)
  local holds_nothing = true
  for number, lane in ipairs(lanes) do
    if wanted > 0 then
      local pending = redis.call('XPENDING', lane.stream, group, '-', '+', wanted, dead)
      claim(orphaned[number], lane.stream, pending)
      holds_nothing = holds_nothing and #pending == 0
    else
      holds_nothing = false
    end
  end
  return holds_nothing
end

-- An error if a group is gone. The commands after it cannot meet another error.
for _, lane in ipairs(lanes) do
  redis.call('XPENDING', lane.stream, group, '-', '+', 1)
end
for number, lane in ipairs(lanes) do
  if wanted > 0 then
    claim_released(number, lane)
  end
end

local time = now(KEYS[3])
if wanted > 0 and may_declare_dead(KEYS[1], KEYS[2], consumer, time) then
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', time, 'LIMIT', 0, ARGV[4])) do
    if wanted <= 0 then
      break
    end
    if claim_held_by(dead) then
      for _, lane in ipairs(lanes) do
        redis.call('XGROUP', 'DELCONSUMER', lane.stream, group, dead)
      end
      redis.call('ZREM', KEYS[1], dead)
      redis.call('ZREM', KEYS[2], dead)
    end
  end
end
return {released, orphaned}
