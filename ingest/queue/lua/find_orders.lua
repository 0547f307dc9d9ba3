#!lua flags=no-writes
-- needs: lists, released, padded, groups, entry_ids, entry_fields, waiting_fields
-- Searches for orders in a queue: one slice of a search, which continues where the last slice has ended. It returns the entries found,
-- without documents.
-- The parts are read in the direction in which entries move: main lane, express lane, retry set, new entries at the end of either
-- lane, dead letters. A part with more entries than the limit is skipped, and reported.
-- KEYS: stream, settled, express, express settled, retry, retry entries, dead
-- ARGV: group, entries to examine, limit (0: none), part to begin with (1: the first), positions in the main lane, the express lane, the
--   retry set and the dead letters, order IDs
-- returns: the time in ms, the part and the positions of the next slice (part 0: done), entries examined, 1 if a part was skipped,
--   for each entry found a list of names and values
local group, budget, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local part = tonumber(ARGV[4])
local at = {main = ARGV[5], express = ARGV[6], retry = ARGV[7], dead = ARGV[8]}
local wanted, found = {}, {}
for i = 9, #ARGV do
  wanted[ARGV[i]] = true
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local examined, passed, size = 0, 0, 0
-- Entries that one command reads while they are large and while they are small, and bytes after which a slice ends: documents may be large.
local LARGE_PAGE, SMALL_PAGE, SMALL, MOST_BYTES = 10, 100, 1000, 2 ^ 18

local function is_spent()
  return examined >= budget or size > MOST_BYTES
end

local function page_size()
  return examined > 0 and size < examined * SMALL and SMALL_PAGE or LARGE_PAGE
end

-- The listed fields of a wanted entry, or nil for any other entry.
local function matching(fields)
  for i = 2, #fields, 2 do
    size = size + #fields[i]
  end
  local named, about = by_name(fields), {}
  if not wanted[named.order_id] or (named.ingest_group and named.ingest_group ~= group) then
    return nil
  end
  for i = 1, #fields, 2 do
    if listed_fields[fields[i]] then
      append(about, fields[i], fields[i + 1])
    end
  end
  return about
end

local function add(about, ...)
  for _, each in ipairs({...}) do
    append(about, tostring(each))
  end
  append(found, about)
end

-- Adds an entry of a lane that waits or is in flight. The group may have finished it, and it is kept for others.
local function add_of_lane(name, stream, settled, id, about, position)
  local is_delivered = position and padded(id) <= position
  local pending = is_delivered and redis.call('XPENDING', stream, group, id, id, 1)[1]
  if pending and not is_released(pending) then
    add(about, 'state', 'in_flight', 'lane', name, 'id', id, 'worker', pending[2], 'idle', pending[3], 'count', pending[4])
  elseif not is_delivered or pending or not redis.call('ZSCORE', settled, padded(id)) then
    add(about, 'state', 'queued', 'lane', name, 'id', id)
  end
end

-- Both return whether the part has been read to its end.
local function read_stream(name, stream, visit)
  repeat
    local count = page_size()
    local page = page_after(stream, at[name], '+', count)
    for _, entry in ipairs(page) do
      at[name] = entry[1]
      local about = matching(entry[2])
      if about then
        visit(entry[1], about)
      end
    end
    examined = examined + #page
    if #page < count then
      return true
    end
  until is_spent()
  return false
end

local function read_retries()
  repeat
    local reply = redis.call('HSCAN', KEYS[6], at.retry, 'COUNT', page_size())
    at.retry = reply[1]
    for i = 1, #reply[2], 2 do
      examined = examined + 1
      local fields = waiting_fields(reply[2][i + 1])
      local about = fields and matching(fields)
      local due = about and redis.call('ZSCORE', KEYS[5], reply[2][i])
      if due then
        add(about, 'state', 'retrying', 'id', reply[2][i], 'due', due)
      end
    end
    if at.retry == '0' then
      return true
    end
  until is_spent()
  return false
end

local function read_lane(name, stream, settled)
  local this_group
  return read_stream(name, stream, function(id, about)
    this_group = this_group or find_group(stream, group)
    add_of_lane(name, stream, settled, id, about, this_group and padded(this_group['last-delivered-id']))
  end)
end

-- Whether a part has too many entries to be read. Later slices skip it as well.
local function is_skipped(name, length)
  if at[name] == 'passed' or (limit > 0 and (at[name] == '-' or at[name] == '0') and length > limit) then
    at[name], passed = 'passed', 1
    return true
  end
  return false
end

local main = {'main', function() return read_lane('main', KEYS[1], KEYS[2]) end, 'XLEN', KEYS[1]}
local express = {'express', function() return read_lane('express', KEYS[3], KEYS[4]) end, 'XLEN', KEYS[3]}
local dead = {'dead', function()
  return read_stream('dead', KEYS[7], function(id, about)
    add(about, 'state', 'dead', 'id', id)
  end)
end, 'XLEN', KEYS[7]}
local parts = {main, express, {'retry', read_retries, 'ZCARD', KEYS[5]}, express, main, dead}
while part > 0 and not is_spent() do
  local name, read, length, key = unpack(parts[part])
  if is_skipped(name, limit > 0 and redis.call(length, key) or 0) or read() then
    part = part < #parts and part + 1 or 0
  end
end
return {now, part, at.main, at.express, at.retry, at.dead, examined, passed, found}
