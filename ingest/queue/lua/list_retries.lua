-- One page of the entries that wait for their next attempt, the soonest first, without documents. Changes nothing.
-- KEYS: retry, retry entries   ARGV: the due time and the name after which the page begins ('-inf' and nothing: at the start), most entries
-- returns: the time and the name to go on after (nothing: the end is reached), for each entry an array of names and values
local from, after, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local MOST_BYTES = 2 ^ 20
local found, size = {}, 0

-- Texts in the order of their bytes, like a sorted set. Lua's own comparison depends on the server's locale.
local function is_after(a, b)
  for i = 1, math.max(#a, #b) do
    local x, y = a:byte(i) or -1, b:byte(i) or -1
    if x ~= y then
      return x > y
    end
  end
  return false
end

-- The rank of the first entry of the page, searched for by halving: many may be due at one time, as when a person has let all run now.
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

local function tell(name, due, packed)
  size = size + #packed
  local fields = waiting_fields(packed) or {}
  local about = {'id', name, 'due', due}
  for i = 1, #fields, 2 do
    if listed_fields[fields[i]] then
      about[#about + 1] = fields[i]
      about[#about + 1] = fields[i + 1]
    end
  end
  found[#found + 1] = about
end

local rank = first_rank()
while true do
  local page = redis.call('ZRANGE', KEYS[1], rank, rank + 9, 'WITHSCORES')
  for i = 1, #page, 2 do
    local name, due = page[i], page[i + 1]
    -- What has no entry has just been moved.
    local packed = redis.call('HGET', KEYS[2], name)
    if packed then
      tell(name, due, packed)
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
