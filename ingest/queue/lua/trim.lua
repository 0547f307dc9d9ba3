-- Deletes what every group has finished, where finishing could not delete it: other groups still had to read it then.
-- One group that stands still keeps everything after its last entry.
-- KEYS: stream   ARGV: our group   returns: how many entries were deleted
local function is_before(one, other)
  local ms, seq = one:match('(%d+)-(%d+)')
  local other_ms, other_seq = other:match('(%d+)-(%d+)')
  if ms == other_ms then
    ms, other_ms = seq, other_seq
  end
  -- As texts: numbers of 64 bits would be rounded.
  return #ms < #other_ms or (#ms == #other_ms and ms < other_ms)
end

-- The first entry that a group has to finish yet; nil if there is none.
local function needed_by(group)
  local pending = redis.call('XPENDING', KEYS[1], group.name, '-', '+', 1)[1]
  local unread = redis.call('XRANGE', KEYS[1], '(' .. group['last-delivered-id'], '+', 'COUNT', 1)[1]
  return pending and pending[1] or unread and unread[1]
end

-- An error, if our group is gone: what it has not seen would count as finished.
redis.call('XPENDING', KEYS[1], ARGV[1])
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
local oldest
for _, facts in ipairs(groups) do
  local group = {}
  for i = 1, #facts, 2 do
    group[facts[i]] = facts[i + 1]
  end
  local needed = needed_by(group)
  if needed and (not oldest or is_before(needed, oldest)) then
    oldest = needed
  end
end
if oldest then
  return redis.call('XTRIM', KEYS[1], 'MINID', '=', oldest)
end
return #groups > 0 and redis.call('XTRIM', KEYS[1], 'MAXLEN', '=', 0) or 0
