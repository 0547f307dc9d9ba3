#!lua flags=no-writes
-- needs: lists
-- How many orders of a former layout the queue of a partition contains, in one step, because they move between its keys.
-- KEYS: clock, stream, express, then for each group: retry, retry announced
-- ARGV: the current number of partitions if the queue is one of them, so that only orders from before count, or 0 otherwise
-- returns: entries of the lanes, retries, 1 if there are orders of the former layout, 1 if producers can add further ones
local MOST_EXAMINED = 1000
local closed, divided_by, divided_at = unpack(redis.call('HMGET', KEYS[1], 'closed', 'divided_by', 'divided_at'))
local entries, retries = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]), 0
for i = 4, #KEYS, 2 do
  retries = retries + redis.call('ZCARD', KEYS[i])
end
if ARGV[1] == '0' then
  return {entries, retries, entries + retries > 0 and 1 or 0, closed and 0 or 1}
end

if divided_by ~= ARGV[1] then
  return {entries, retries, 1, 1}
end
local function is_before(at)
  return at and tonumber(at) and tonumber(at) <= tonumber(divided_at)
end

local function has_before()
  local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  -- A repaired lane has given its entries new IDs.
  if first and (is_before(first[1]:match('^%d+')) or is_before(by_name(first[2]).enqueued_at)) then
    return true
  end
  -- An entry of the express lane may be a retry of an earlier entry.
  local examined, from = 0, '-'
  repeat
    local page = redis.call('XRANGE', KEYS[3], from, '+', 'COUNT', 100)
    for _, entry in ipairs(page) do
      if is_before(entry[1]:match('^%d+')) or is_before(by_name(entry[2]).enqueued_at) then
        return true
      end
      from = '(' .. entry[1]
    end
    examined = examined + #page
  until #page < 100 or examined >= MOST_EXAMINED
  if examined >= MOST_EXAMINED then
    return true
  end
  for i = 5, #KEYS, 2 do
    local noted = redis.call('ZRANGE', KEYS[i], 0, 9, 'WITHSCORES')
    for j = 1, #noted, 2 do
      if is_before(noted[j + 1]) and redis.call('ZSCORE', KEYS[i - 1], noted[j]) then
        return true
      end
    end
  end
  return false
end
return {entries, retries, has_before() and 1 or 0, 0}
