#!lua flags=allow-oom
-- needs: lists, now, released, padded, groups, standing, entry_ids
-- One page of the sweep through the entries that the group has received and not finished. Releases entries that were not renewed for too
-- long, and puts lost entries back, which have left the pending list without an ack (XGROUP DELCONSUMER or SETID, an XACK by hand). A
-- lost entry is behind the group's position, neither pending nor noted as settled. The cursors are shared, so that a new leader
-- continues there. A sweep goes through the express lane, which is mostly empty, and then through the main lane. In each it ends at the
-- group's position when it began, because the group may receive entries as fast as a sweep examines them.
-- KEYS: alive, standing, clock, maintenance, then of each lane, express first: stream, released, settled
-- ARGV: group, consumer, idle ms, most entries to examine in a lane
-- returns: 1 if the sweep is complete, how many were released, the entries that were put back: for each its stream and ID
local group, consumer, idle, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local may_release = may_release_idle(KEYS[1], KEYS[2], consumer, now(KEYS[3]))
local released, restored = 0, {}

-- Releases entries, whose deliveries stay counted. A lost entry is pending again as if it had not been delivered. The commands are the
-- same as in release.lua.
local function put_back(lane, ids, is_lost)
  if #ids == 0 then
    return
  end
  local command
  if has_xnack then
    command = {'XNACK', lane.stream, group, 'FAIL', 'IDS', #ids, unpack(ids)}
  else
    command = {'XCLAIM', lane.stream, group, consumer, 0, unpack(ids)}
    append(command, 'TIME', 0, 'JUSTID')
  end
  if is_lost then
    append(command, 'FORCE', 'RETRYCOUNT', 0)
  end
  redis.call(unpack(command))
  local scored = {}
  for _, id in ipairs(ids) do
    append(scored, 0, id)
  end
  redis.call('ZADD', lane.released, unpack(scored))
end

-- The only ID that can follow an ID directly, or nil for sequences so large that a number would round them.
local function successor(id)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  return #seq < 16 and ms .. '-' .. string.format('%d', seq + 1) or nil
end

-- Of the pending entries of a page, notes the released ones, and releases the idle ones.
local function release_idle(lane, pending)
  local command = {'XCLAIM', lane.stream, group, consumer, idle}
  for _, entry in ipairs(pending) do
    if is_released(entry) then
      redis.call('ZADD', lane.released, 'NX', 0, entry[1])
    elseif may_release and entry[3] >= idle then
      append(command, entry[1])
    end
  end
  if #command > 5 then
    -- Removes the records of entries that were deleted, and returns the others.
    append(command, 'JUSTID')
    local ids = redis.call(unpack(command))
    put_back(lane, ids, false)
    released = released + #ids
  end
end

-- One page of a lane, whose sweep ends at `last`, if that is known. Returns where the next page begins, nil at the lane's end, and
-- where the sweep of the lane ends.
local function sweep_page(lane, from, last)
  -- The group has received all entries up to its position. Of these, pending and settled entries are accounted for. A page ends where
  -- either list ends.
  local pending = redis.call('XPENDING', lane.stream, group, from, '+', most)
  local upto, is_complete = padded(find_group(lane.stream, group)['last-delivered-id']), true
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
    append(accounted, padded(entry[1]))
  end
  release_idle(lane, pending)
  table.sort(accounted)

  -- Each gap between accounted entries costs one command, and only lost entries are read, ten with each, because they may be large.
  local lost, start, size = {}, from, 0
  local function look(to)
    local found
    repeat
      found = page_after(lane.stream, start, to, 10)
      for _, entry in ipairs(found) do
        append(lost, entry[1])
        append(restored, {lane.stream, entry[1]})
        start = entry[1]
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
    start, before = plain, successor(plain)
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

-- A page of the lane with that number. A sweep that begins there has no end yet. Neither has a sweep that an older release has begun.
local function next_page(lane, number)
  local from = cursors[number] and cursors[number]:match('^%d+%-%d+$') or '0-0'
  local last = from ~= '0-0' and ends[number] and ends[number]:match('^%d+%-%d+$') or nil
  local next_
  next_, ends[number] = sweep_page(lane, from, last)
  return next_
end

-- An error if a group is gone, before anything is released. The call is sent again when the group was created again.
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
