-- One page of the sweep through what the group was given and has not finished. Releases what nobody has renewed for too long,
-- and puts back what has left the pending list without an ack (XGROUP DELCONSUMER or SETID, an XACK by hand): such an entry is
-- behind the group's position, neither pending nor noted as settled. The cursor is shared, so that a new leader goes on there.
-- A consumer that has a heartbeat but no standing releases nothing that somebody holds.
-- KEYS: stream, alive, standing, clock, released, settled, maintenance
-- ARGV: group, consumer, idle ms, most entries to look at
-- returns: 1 if the sweep is complete, how many were released, the IDs that were put back
local stream, group, consumer, idle, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local may_release = not redis.call('ZSCORE', KEYS[2], consumer) or has_standing(KEYS[2], KEYS[3], consumer, now(KEYS[4]))
local from = redis.call('HGET', KEYS[7], 'cursor')
if not from or not from:match('^%d+%-%d+$') then
  from = '0-0'
end

local function release(ids, is_lost)
  if #ids > 0 then
    put_back(stream, group, consumer, ids, is_lost)
    local scored = {}
    for _, id in ipairs(ids) do
      scored[#scored + 1] = 0
      scored[#scored + 1] = id
    end
    redis.call('ZADD', KEYS[5], unpack(scored))
  end
end

-- What the group has been given: all up to its position. Of that, what is pending or settled is accounted for; a page ends where
-- either list does.
local pending = redis.call('XPENDING', stream, group, from, '+', most)
local upto
for _, facts in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local about = {}
  for i = 1, #facts, 2 do
    about[facts[i]] = facts[i + 1]
  end
  if about.name == group then
    upto = padded(about['last-delivered-id'])
  end
end
local is_complete = true
local function ends_at(id)
  if id < upto then
    upto, is_complete = id, false
  end
end
if #pending == most then
  ends_at(padded(pending[most][1]))
end
local accounted = redis.call('ZRANGEBYLEX', KEYS[6], '[' .. padded(from), '[' .. upto, 'LIMIT', 0, most)
if #accounted == most then
  ends_at(accounted[most])
end

local idlers = {'XCLAIM', stream, group, consumer, idle}
for _, entry in ipairs(pending) do
  accounted[#accounted + 1] = padded(entry[1])
  if is_released(entry) then
    redis.call('ZADD', KEYS[5], 0, entry[1])
  elseif may_release and entry[3] >= idle then
    idlers[#idlers + 1] = entry[1]
  end
end
local released = {}
if #idlers > 5 then
  -- Of entries whose message is gone, this clears the records away, and tells the others.
  idlers[#idlers + 1] = 'JUSTID'
  released = redis.call(unpack(idlers))
  release(released, false)
end
table.sort(accounted)

-- The gaps between the accounted ones: each costs one look, and only what is lost is read: ten at a time, as entries may be large.
local lost, start, size = {}, from, 0
local function look(to)
  local found
  repeat
    found = redis.call('XRANGE', stream, start, to, 'COUNT', 10)
    for _, entry in ipairs(found) do
      lost[#lost + 1] = entry[1]
      start = '(' .. entry[1]
      for _, part in ipairs(entry[2]) do
        size = size + #part
      end
    end
  until #found < 10 or #lost >= most / 2 or size > 2 ^ 18
  if #found == 10 then
    ends_at(padded(lost[#lost]))
  end
end
for _, id in ipairs(accounted) do
  if id > upto then
    break
  end
  look('(' .. unpadded(id))
  start = '(' .. unpadded(id)
end
if is_complete then
  look(unpadded(upto))
end
release(lost, true)
redis.call('HSET', KEYS[7], 'cursor', is_complete and '0-0' or unpadded(upto))
return {is_complete and 1 or 0, #released, lost}
