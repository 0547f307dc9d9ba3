#!lua flags=no-writes
-- needs: lists, entry_fields, waiting_fields
-- One page of the retry set, the soonest entries first, without documents.
-- KEYS: retry, retry entries   ARGV: the due time and the name after which the page begins (-inf and empty: at the start), most entries,
-- names of unknown fields that are returned nevertheless
-- returns: the time and the name after which the next page begins (empty: there is none), for each entry a list of names and values
local from, after, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local MOST_BYTES = 2 ^ 20
local found, size = {}, 0
for i = 4, #ARGV do
  listed_fields[ARGV[i]] = 1
end

-- Compares texts by their bytes, like a sorted set. Lua's own comparison depends on the server's locale.
local function is_after(a, b)
  for i = 1, math.max(#a, #b) do
    local x, y = a:byte(i) or -1, b:byte(i) or -1
    if x ~= y then
      return x > y
    end
  end
  return false
end

-- The rank of the first entry of the page, found by halving, because many may be due at the same time.
local function first_rank()
  local low, high = 0, redis.call('ZCARD', KEYS[1])
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entry = redis.call('ZRANGE', KEYS[1], middle, middle, 'WITHSCORES')
    local due, begin = tonumber(entry[2]), tonumber(from)
    if due > begin or due == begin and is_after(entry[1], after) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function add(name, due, packed)
  size = size + #packed
  local fields = waiting_fields(packed) or {}
  local about = {'id', name, 'due', due}
  for i = 1, #fields, 2 do
    if listed_fields[fields[i]] then
      append(about, fields[i], fields[i + 1])
    end
  end
  append(found, about)
end

local rank = first_rank()
while true do
  local page = redis.call('ZRANGE', KEYS[1], rank, rank + 9, 'WITHSCORES')
  for i = 1, #page, 2 do
    local name, due = page[i], page[i + 1]
    -- Without an entry, it has just been moved.
    local packed = redis.call('HGET', KEYS[2], name)
    if packed then
      add(name, due, packed)
    end
    from, after = due, name
    if #found >= most or size > MOST_BYTES then
      return {from, after, found}
    end
  end
  if #page < 20 then
    return {'', '', found}
  end
  rank = rank + 10
end
