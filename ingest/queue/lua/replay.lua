-- needs: lists, others, entry_fields, wide, order_of, erased, seen
-- Moves dead letters to the express lane with fresh attempts. Only an entry that is still a dead letter is moved, so that two calls move it
-- once. The record keeps the result for a call that is sent again after a lost reply. Dead letters of erased orders are deleted.
-- KEYS: dead, dead seen, express, stream, erased, record of the call (none in a step of a job)   ARGV: group, entry IDs   returns: how many were moved
local done = KEYS[6] and redis.call('GET', KEYS[6])
if done then
  return tonumber(done)
end
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))

local function number(text)
  return text and #text <= 13 and text:find('^%d+$') and text
end

local function revived(id, entry)
  local fields, was = {}, by_name(entry)
  local _, _, pushed = seen_again(KEYS[2], id, was)
  for i = 1, #entry, 2 do
    -- Fields that dead-lettering has added or a replay writes again. All others are the entry's own and stay.
    if not fields_of_dead_letters[entry[i]] and not fields_of_moves[entry[i]] then
      -- The same document may have been accepted again since.
      append(fields, entry[i], entry[i] == 'pushed_at' and pushed or entry[i + 1])
    end
  end
  -- The order has waited since it was first announced, not since the replay.
  local since = number(was.first_enqueued_at) or number(was.enqueued_at)
  if since then
    append(fields, 'enqueued_at', since)
  end
  local replays = number(was.replays) and #was.replays <= 6 and tonumber(was.replays) or 0
  append(fields, 'replays', string.format('%d', replays + 1), 'replayed_at', now)
  return fields
end

local is_shared = has_other_groups(KEYS[3], KEYS[4])
local moved = 0
for i = 2, #ARGV do
  local entry = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  if entry and is_erased(KEYS[5], order_of(entry[2])) then
    redis.call('XDEL', KEYS[1], ARGV[i])
    forget_seen(KEYS[2], ARGV[i], by_name(entry[2]))
  elseif entry then
    -- Added before it is deleted, so that an error in between leaves it in both places. Out of memory, Redis rejects the first write only.
    redis.call('XADD', KEYS[3], '*', unpack(narrow(addressed(is_shared, ARGV[1], revived(ARGV[i], entry[2])))))
    redis.call('XDEL', KEYS[1], ARGV[i])
    forget_seen(KEYS[2], ARGV[i], by_name(entry[2]))
    moved = moved + 1
  end
end
if moved > 0 and KEYS[6] then
  redis.call('SET', KEYS[6], moved, 'EX', record_seconds)
end
return moved
