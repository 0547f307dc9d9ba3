#!lua flags=no-writes
-- needs: now, groups, entry_ids
-- The state of a queue and its group at one moment. Its cost does not depend on the number of queued orders.
-- KEYS: retry, retry announced, dead, stream, express, clock   ARGV: group
-- returns: the time in ms, entries in the retry set, how many of them are due, when the oldest order there was first announced
-- (nil: unknown), dead letters, then for each lane: its depth (nil: unknown), pending entries, when its oldest order was announced
-- (nil: it is empty), consumers, by how many ms its last ID is ahead of Redis' clock (a text: it may exceed 64 bits), 1 if there is no
-- further ID
-- Ages are by Redis' own clock, which gives entries their IDs. Retries are due by the queue's clock, like in move_due.lua.
local queue_time, time = now(KEYS[6])
-- Entries that are examined for the oldest order, the size of a page, and bytes after which the search ends: documents may be large.
local PAGE, MOST_IN_MAIN, MOST_IN_EXPRESS, MOST_BYTES = 10, 10, 100, 2 ^ 18

-- When the order of an entry was first announced, and the size of the entry. A retry and a replay carry the time of the first entry.
local function announced_at(entry)
  local at, size = math.min(time, tonumber(entry[1]:match('^%d+'))), 0
  for i = 1, #entry[2], 2 do
    local name, value = entry[2][i], entry[2][i + 1]
    if name == 'enqueued_at' and #value <= 13 and value:find('^%d+$') then
      at = math.min(at, tonumber(value))
    end
    size = size + #name + #value
  end
  return at, size
end

-- In the main lane the first entries are the oldest. In the express lane any may be, but it is short, because it is read first. The first
-- page is a single entry, because ten may be 40 MB, which Redis copies.
local function oldest_in(stream, most)
  local oldest, last, total, examined = false, '-', 0, 0
  while examined < most and total <= MOST_BYTES do
    local count = examined == 0 and 1 or PAGE - examined % PAGE
    local page = page_after(stream, last, '+', count)
    for _, entry in ipairs(page) do
      local at, size = announced_at(entry)
      oldest, last, total = math.min(oldest or at, at), entry[1], total + size
    end
    if #page < count then
      break
    end
    examined = examined + count
  end
  return oldest
end

-- Skips entries that an older release has moved, which may still be noted as announced.
local function oldest_retry(retry, announced)
  local noted = redis.call('ZRANGE', announced, 0, 9, 'WITHSCORES')
  for i = 1, #noted, 2 do
    if redis.call('ZSCORE', retry, noted[i]) then
      return math.min(time, tonumber(noted[i + 1]))
    end
  end
  return false
end

-- How many entries of the retry set are due. Found by halving, because an access control list of an older release lacks ZCOUNT.
local function due_of(retry, count)
  local low, high = 0, count
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(redis.call('ZRANGE', retry, middle, middle, 'WITHSCORES')[2]) <= queue_time then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Finished entries are deleted. So with one group the exact number of undelivered entries is the number of entries that are not pending.
-- With several groups it is Redis' own count, which is nil after entries were deleted unread. A missing group will receive all entries.
local function lane(stream, most)
  local length, oldest = redis.call('XLEN', stream), oldest_in(stream, most)
  local id, ahead = last_id(stream)
  local ids = {string.format('%.0f', ahead), id == largest_id and 1 or 0}
  local group, groups = find_group(stream, ARGV[1])
  if not group then
    return {length, 0, oldest, 0, unpack(ids)}
  end
  local depth = groups == 1 and math.max(0, length - group.pending) or group.lag or false
  return {depth, group.pending, oldest, group.consumers, unpack(ids)}
end

local retries = redis.call('ZCARD', KEYS[1])
local state = {time, retries, due_of(KEYS[1], retries), oldest_retry(KEYS[1], KEYS[2]), redis.call('XLEN', KEYS[3])}
state[6], state[7] = lane(KEYS[4], MOST_IN_MAIN), lane(KEYS[5], MOST_IN_EXPRESS)
return state
