-- Looks for orders in a queue: one slice of a search that goes on where the last one has ended. It changes nothing, and hands over
-- only what is found, without documents.
-- The parts are read in the direction in which entries move: main lane, express lane, retry set, what has come to the end of either
-- lane since, dead letters. A part that has more entries than the limit is passed over, and reported.
-- KEYS: stream, settled, express, express settled, retry, retry entries, dead
-- ARGV: group, entries to look at, limit (0: none), part to go on with (1: the first), positions in the main lane, the express lane, the
--   retry set and the dead letters, order IDs
-- returns: the time in ms, the part and the positions to go on with (part 0: done), entries looked at, 1 if a part was passed over,
--   what was found: for each entry an array of names and values
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
-- Entries that are read at a time while they are large and while they are small, and bytes after which a slice ends: documents may be large.
local LARGE_PAGE, SMALL_PAGE, SMALL, MOST_BYTES = 10, 100, 1000, 2 ^ 18

local function is_spent()
  return examined >= budget or size > MOST_BYTES
end

local function page_size()
  return examined > 0 and size < examined * SMALL and SMALL_PAGE or LARGE_PAGE
end

-- The fields of a wanted entry that are told; nil for any other. Named twice, the last one counts, as in a mapping.
local function matching(fields)
  local order, meant_for
  for i = 1, #fields, 2 do
    size = size + #fields[i + 1]
    if fields[i] == 'order_id' then
      order = fields[i + 1]
    elseif fields[i] == 'ingest_group' then
      meant_for = fields[i + 1]
    end
  end
  if not wanted[order] or (meant_for and meant_for ~= group) then
    return nil
  end
  local about = {}
  for i = 1, #fields, 2 do
    if listed_fields[fields[i]] then
      about[#about + 1] = fields[i]
      about[#about + 1] = fields[i + 1]
    end
  end
  return about
end

local function tell(about, ...)
  for _, each in ipairs({...}) do
    about[#about + 1] = tostring(each)
  end
  found[#found + 1] = about
end

-- The last entry of a lane that the group was given; nothing, if the group does not exist.
local function given_up_to(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  for _, facts in ipairs(groups.err and {} or groups) do
    local about = {}
    for i = 1, #facts, 2 do
      about[facts[i]] = facts[i + 1]
    end
    if about.name == group then
      return padded(about['last-delivered-id'])
    end
  end
end

-- An entry of a lane: waiting, in flight, or finished by this group and kept for others.
local function tell_of_lane(name, stream, settled, id, about, given)
  local is_given = given and padded(id) <= given
  local pending = is_given and redis.call('XPENDING', stream, group, id, id, 1)[1]
  if pending and not is_released(pending) then
    tell(about, 'state', 'in_flight', 'lane', name, 'id', id, 'worker', pending[2], 'idle', pending[3], 'count', pending[4])
  elseif not is_given or pending or not redis.call('ZSCORE', settled, padded(id)) then
    tell(about, 'state', 'queued', 'lane', name, 'id', id)
  end
end

-- Both return whether the part has been read to its end.
local function read_stream(name, stream, visit)
  repeat
    local count = page_size()
    local page = redis.call('XRANGE', stream, at[name] == '-' and '-' or '(' .. at[name], '+', 'COUNT', count)
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
        tell(about, 'state', 'retrying', 'id', reply[2][i], 'due', due)
      end
    end
    if at.retry == '0' then
      return true
    end
  until is_spent()
  return false
end

local function read_lane(name, stream, settled)
  local given
  return read_stream(name, stream, function(id, about)
    given = given or given_up_to(stream)
    tell_of_lane(name, stream, settled, id, about, given)
  end)
end

local function read_main()
  return read_lane('main', KEYS[1], KEYS[2])
end

local function read_express()
  return read_lane('express', KEYS[3], KEYS[4])
end

local function read_dead()
  return read_stream('dead', KEYS[7], function(id, about)
    tell(about, 'state', 'dead', 'id', id)
  end)
end

-- Whether a part has too many entries to be read; it is not looked at again.
local function is_passed_over(name, length)
  if at[name] == 'passed' or (limit > 0 and (at[name] == '-' or at[name] == '0') and length > limit) then
    at[name], passed = 'passed', 1
    return true
  end
  return false
end

local parts = {
  {'main', read_main, 'XLEN', KEYS[1]}, {'express', read_express, 'XLEN', KEYS[3]}, {'retry', read_retries, 'ZCARD', KEYS[5]},
  {'express', read_express, 'XLEN', KEYS[3]}, {'main', read_main, 'XLEN', KEYS[1]}, {'dead', read_dead, 'XLEN', KEYS[7]},
}
while part > 0 and not is_spent() do
  local name, read, length, key = unpack(parts[part])
  if is_passed_over(name, limit > 0 and redis.call(length, key) or 0) or read() then
    part = part < #parts and part + 1 or 0
  end
end
return {now, part, at.main, at.express, at.retry, at.dead, examined, passed, found}
