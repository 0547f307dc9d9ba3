-- Deletes what every group has finished, where finishing could not delete it: other groups still had to read it then.
-- One group that stands still keeps everything after its last entry.
-- KEYS: stream   returns: how many entries were deleted
local function is_before(one, other)
  local ms, seq = one:match('(%d+)-(%d+)')
  local other_ms, other_seq = other:match('(%d+)-(%d+)')
  if ms ~= other_ms then
    return tonumber(ms) < tonumber(other_ms)
  end
  return #seq < #other_seq or (#seq == #other_seq and seq < other_seq)
end
local function successor(id)
  local ms, seq = id:match('(%d+)-(%d+)')
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end
local oldest
for _, facts in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = {}
  for i = 1, #facts, 2 do
    group[facts[i]] = facts[i + 1]
  end
  local needed = successor(group['last-delivered-id'])
  if group.pending > 0 then
    local first = redis.call('XPENDING', KEYS[1], group.name, '-', '+', 1)[1]
    needed = first and first[1] or needed
  end
  if not oldest or is_before(needed, oldest) then
    oldest = needed
  end
end
return oldest and redis.call('XTRIM', KEYS[1], 'MINID', '=', oldest) or 0
