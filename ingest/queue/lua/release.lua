-- Releases owned entries: claimable immediately, and the delivery that did not happen is not counted. Sent twice, it takes one off
-- the count once: released entries have no owner, or are idle since 1970. An entry that holds another order, which was given its ID by a
-- server whose clock is behind, stays as it is.
-- KEYS: stream, released   ARGV: group, consumer, for each entry: ID, order ID
-- returns: how many are released, the places in the list, from 0, of those that are gone
local held = holdings(KEYS[1], ARGV[1], ARGV[2], (#ARGV - 2) / 2)
local owned, gone, scored = {}, {}, {}
-- What was released first is claimed first: the order that a probe has met is not the next one's again.
local time = redis.call('TIME')
local released_at = time[1] * 1000 + math.floor(time[2] / 1000)
local renewal = {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0}
local function note(id)
  scored[#scored + 1] = released_at
  scored[#scored + 1] = id
end
for i = 3, #ARGV, 2 do
  local pending = held(ARGV[i]) or redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  local ours = pending and pending[2] == ARGV[2]
  local entry = ours and redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  local named = entry and order_of(entry[2]) or ''
  if ours and (named == ARGV[i + 1] or named == '') then
    if is_released(pending) then
      note(ARGV[i])
    elseif not owned[ARGV[i]] then
      owned[ARGV[i]] = {pending, (i - 3) / 2}
      renewal[#renewal + 1] = ARGV[i]
    end
  elseif is_gone(KEYS[1], ARGV[1], ARGV[i], ARGV[i + 1]) then
    gone[#gone + 1] = (i - 3) / 2
  end
end

-- Of an entry that was deleted while it was held, claiming removes the record: who held it has all that is left.
local released = {}
if #renewal > 5 then
  renewal[#renewal + 1] = 'JUSTID'
  for _, id in ipairs(redis.call(unpack(renewal))) do
    note(id)
    released[#released + 1] = owned[id][1]
    owned[id] = nil
  end
  for _, each in pairs(owned) do
    gone[#gone + 1] = each[2]
  end
  release_uncounted(KEYS[1], ARGV[1], ARGV[2], released)
end
if #scored > 0 then
  redis.call('ZADD', KEYS[2], unpack(scored))
end
return {#scored / 2, gone}
