-- Moves dead letters to the express lane with fresh attempts. That one is still dead is the guard: asked twice, or by two at
-- once, it goes back once. The record keeps the result of a call whose reply was lost. Those of orders that were erased are deleted.
-- KEYS: dead, express, stream, erased, record of the call   ARGV: group, entry IDs   returns: how many were moved
local done = redis.call('GET', KEYS[5])
if done then
  return tonumber(done)
end
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))

local function number(text)
  return text and #text <= 13 and text:find('^%d+$') and text
end

local function revived(entry)
  local fields, was = {}, {}
  for i = 1, #entry, 2 do
    -- Added by dead-lettering, or written again by a replay. All else is the entry's own and stays.
    if fields_of_dead_letters[entry[i]] or fields_of_moves[entry[i]] then
      was[entry[i]] = entry[i + 1]
    else
      fields[#fields + 1] = entry[i]
      fields[#fields + 1] = entry[i + 1]
    end
  end
  -- The order has waited since it was first announced: its age is told from there, not from the replay.
  local since = number(was.first_enqueued_at) or number(was.enqueued_at)
  if since then
    fields[#fields + 1] = 'enqueued_at'
    fields[#fields + 1] = since
  end
  local replays = number(was.replays) and #was.replays <= 6 and tonumber(was.replays) or 0
  for _, part in ipairs({'replays', string.format('%d', replays + 1), 'replayed_at', now}) do
    fields[#fields + 1] = part
  end
  return fields
end

local is_shared = has_other_groups(KEYS[2], KEYS[3])
local moved = 0
for i = 2, #ARGV do
  local entry = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  if entry and is_erased(KEYS[4], order_of(entry[2])) then
    redis.call('XDEL', KEYS[1], ARGV[i])
  elseif entry then
    -- Added before it is deleted: refused in between, it is there twice. Out of memory, Redis refuses the first write only.
    redis.call('XADD', KEYS[2], '*', unpack(narrow(addressed(is_shared, ARGV[1], revived(entry[2])))))
    redis.call('XDEL', KEYS[1], ARGV[i])
    moved = moved + 1
  end
end
if moved > 0 then
  redis.call('SET', KEYS[5], moved, 'EX', record_seconds)
end
return moved
