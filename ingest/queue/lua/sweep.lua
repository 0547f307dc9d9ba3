-- One page of the sweep through what the group was given and has not finished. Releases entries that were not renewed for too long,
-- and puts back what has left the pending list without an ack (XGROUP DELCONSUMER or SETID, an XACK by hand): such an entry is
-- behind the group's position, neither pending nor noted as settled. The cursors are shared, so that a new leader goes on there.
-- A sweep goes through the express lane, which is mostly empty, and then through the main one: in each up to where the group was when
-- the sweep came to it, as the group may be given entries as fast as a sweep looks at them.
-- KEYS: alive, standing, clock, maintenance; of each lane, express first: stream, released, settled
-- ARGV: group, consumer, idle ms, most entries to look at in a lane
-- returns: 1 if the sweep is complete, how many were released, the entries that were put back: for each its stream and ID
local group, consumer, idle, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local may_release = may_release_idle(KEYS[1], KEYS[2], consumer, now(KEYS[3]))
local released, restored = 0, {}

local function put_back(lane, ids, is_lost)
  if #ids > 0 then
    release_counted(lane.stream, group, consumer, ids, is_lost)
    local scored = {}
    for _, id in ipairs(ids) do
      scored[#scored + 1] = 0
      scored[#scored + 1] = id
    end
    redis.call('ZADD', lane.released, unpack(scored))
  end
end

-- The last entry that the group was given.
local function position(stream)
  for _, facts in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local about = {}
    for i = 1, #facts, 2 do
      about[facts[i]] = facts[i + 1]
    end
    if about.name == group then
      return padded(about['last-delivered-id'])
    end
  end
end

-- The only ID that can follow that one directly; nil for sequences so large that a number would round them.
local function successor(id)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  return #seq < 16 and ms .. '-' .. string.format('%d', seq + 1) or nil
end

-- What of a page is pending: notes what is released, and releases what is idle.
local function release_idle(lane, pending)
  local command = {'XCLAIM', lane.stream, group, consumer, idle}
  for _, entry in ipairs(pending) do
    if is_released(entry) then
      redis.call('ZADD', lane.released, 'NX', 0, entry[1])
    elseif may_release and entry[3] >= idle then
      command[#command + 1] = entry[1]
    end
  end
  if #command > 5 then
    -- Of entries whose message is gone, this removes the records, and returns the others.
    command[#command + 1] = 'JUSTID'
    local ids = redis.call(unpack(command))
    put_back(lane, ids, false)
    released = released + #ids
  end
end

-- One page of a lane, whose sweep ends at `last`, if that is known; returns where the next one begins, nil at the lane's end, and
-- where the sweep of the lane ends.
local function sweep_page(lane, from, last)
  -- What the group has been given: all up to its position. Of that, what is pending or settled is accounted for; a page ends where
  -- either list does.
  local pending = redis.call('XPENDING', lane.stream, group, from, '+', most)
  local upto, is_complete = position(lane.stream), true
  last = last or unpadded(upto)
  if padded(last) < upto then
    upto = padded(last)
  end
  local function ends_at(id)
    if id < upto then
      upto, is_complete = id, false
    end
  end
  if #pending == most then
    ends_at(padded(pending[most][1]))
  end
  local accounted = redis.call('ZRANGEBYLEX', lane.settled, '[' .. padded(from), '[' .. upto, 'LIMIT', 0, most)
  if #accounted == most then
    ends_at(accounted[most])
  end
  for _, entry in ipairs(pending) do
    accounted[#accounted + 1] = padded(entry[1])
  end
  release_idle(lane, pending)
  table.sort(accounted)

  -- The gaps between the accounted ones: each costs one look, and only what is lost is read: ten at a time, as entries may be large.
  local lost, start, size = {}, from, 0
  local function look(to)
    local found
    repeat
      found = redis.call('XRANGE', lane.stream, start, to, 'COUNT', 10)
      for _, entry in ipairs(found) do
        lost[#lost + 1] = entry[1]
        restored[#restored + 1] = {lane.stream, entry[1]}
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
  local before
  for _, id in ipairs(accounted) do
    if id > upto then
      break
    end
    local plain = unpadded(id)
    if plain ~= before then
      look('(' .. plain)
    end
    start, before = '(' .. plain, successor(plain)
  end
  if is_complete then
    look(unpadded(upto))
  end
  put_back(lane, lost, true)
  return not is_complete and unpadded(upto) or nil, last
end

local express = {stream = KEYS[5], released = KEYS[6], settled = KEYS[7]}
local main = {stream = KEYS[8], released = KEYS[9], settled = KEYS[10]}
local state = redis.call('HMGET', KEYS[4], 'express_cursor', 'cursor', 'express_end', 'end')
local cursors, ends = {state[1], state[2]}, {state[3], state[4]}

-- A page of the lane with that number. A sweep that begins there has no end yet; nor has one that an older release has begun.
local function next_page(lane, number)
  local from = cursors[number] and cursors[number]:match('^%d+%-%d+$') or '0-0'
  local last = from ~= '0-0' and ends[number] and ends[number]:match('^%d+%-%d+$') or nil
  local next_
  next_, ends[number] = sweep_page(lane, from, last)
  return next_
end

-- An error, if a group is gone, before anything is released: made again, the group is swept by the same call, sent again.
redis.call('XPENDING', main.stream, group, '-', '+', 1)

local is_complete = false
if cursors[1] ~= 'done' then
  cursors[1] = next_page(express, 1) or 'done'
end
if cursors[1] == 'done' then
  local next_ = next_page(main, 2)
  is_complete = not next_
  cursors = {next_ and 'done' or '0-0', next_ or '0-0'}
end
redis.call(
  'HSET', KEYS[4], 'express_cursor', cursors[1], 'cursor', cursors[2] or '0-0',
  'express_end', ends[1] or '0-0', 'end', ends[2] or '0-0'
)
return {is_complete and 1 or 0, released, restored}
