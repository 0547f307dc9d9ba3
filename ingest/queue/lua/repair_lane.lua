#!lua flags=allow-oom
-- needs: lists, entry_fields, wide, entry_ids
-- One step of the repair of a lane whose last ID is too far ahead. Entries move to a second stream, with new IDs. When the lane is empty,
-- that stream takes its place, and its groups receive all entries again. Each step adds an entry before it deletes it, so that an error in
-- between leaves it in both. Until the last step the lane is too far ahead, so that a repair that was interrupted continues here.
-- KEYS: the lane's stream, the second stream, keys about the lane's entries that refer to their IDs
-- ARGV: by how many ms IDs may be ahead, group, most entries
-- returns: entries moved, 1 if the lane needs no further step, 1 if this step has put the lane in order
local lane, second, most = KEYS[1], KEYS[2], tonumber(ARGV[3])
local moved, size = 0, 0

-- The fields of an entry, which waits since it was first enqueued.
local function kept(id, fields)
  local time, at = redis.call('TIME'), id:match('^%d+')
  if not by_name(fields).enqueued_at and tonumber(at) <= time[1] * 1000 + math.floor(time[2] / 1000) then
    append(fields, 'enqueued_at', at)
  end
  return narrow(fields)
end

local function move(from, to)
  while moved < most and size <= 2 ^ 20 do
    local page = redis.call('XRANGE', from, '-', '+', 'COUNT', 10)
    for _, entry in ipairs(page) do
      for _, part in ipairs(entry[2]) do
        size = size + #part
      end
      redis.call('XADD', to, '*', unpack(kept(entry[1], entry[2])))
      redis.call('XDEL', from, entry[1])
    end
    moved = moved + #page
    if #page < 10 then
      return
    end
  end
end

local _, ahead = last_id(lane)
if ahead <= tonumber(ARGV[1]) then
  -- The lane was deleted by hand after a repair was interrupted.
  move(second, lane)
  return {moved, redis.call('XLEN', second) == 0 and 1 or 0, 0}
end
-- An error if the user lacks the right to RENAME, before anything is moved.
redis.call('RENAME', lane, lane)
move(lane, second)
if redis.call('XLEN', lane) > 0 then
  return {moved, 0, 0}
end
local groups = {[ARGV[2]] = true}
for _, about in ipairs(redis.call('XINFO', 'GROUPS', lane)) do
  groups[by_name(about).name] = true
end
for name in pairs(groups) do
  redis.call('XGROUP', 'CREATE', second, name, '0', 'MKSTREAM')
end
redis.call('RENAME', second, lane)
for i = 3, #KEYS do
  redis.call('ZREMRANGEBYRANK', KEYS[i], 0, -1)
end
return {moved, 1, 1}
