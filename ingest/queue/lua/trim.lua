-- needs: lists, padded, entry_ids
-- Deletes entries that this group has settled and that all other groups have finished since. A group that stands still keeps all entries
-- after its first unfinished one. An entry that another group of this service has not noted as settled was lost by that group, whose
-- sweep puts it back.
-- KEYS: stream, settled, then for each other group: its settled entries, its maintenance (which a group of this service has)
-- ARGV: this group, consumer, most entries, the other groups   returns: how many entries were deleted, or -1 if there are further groups

-- The first entry that a group has not finished, or nil if there is none. A group whose position was set back reads entries before its
-- pending ones again.
local function needed_by(group)
  local pending = redis.call('XPENDING', KEYS[1], group.name, '-', '+', 1)[1]
  local unread = page_after(KEYS[1], group['last-delivered-id'], '+', 1)[1]
  if pending and unread and padded(unread[1]) < padded(pending[1]) then
    return unread[1]
  end
  return pending and pending[1] or unread and unread[1]
end

-- An error if this group is gone. When it is created again, it begins at the start of the stream.
redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1)
local oldest
local others, records = {}, {}
for i = 4, #ARGV do
  others[ARGV[i]] = true
  if redis.call('EXISTS', KEYS[2 * i - 4]) == 1 then
    append(records, KEYS[2 * i - 5])
  end
end
for _, about in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = by_name(about)
  if group.name ~= ARGV[1] and not others[group.name] then
    return -1
  end
  local needed = group.name ~= ARGV[1] and needed_by(group)
  if needed and (not oldest or padded(needed) < oldest) then
    oldest = padded(needed)
  end
end
local settled = redis.call('ZRANGEBYLEX', KEYS[2], '-', oldest and '(' .. oldest or '+', 'LIMIT', 0, ARGV[3])
local ids, done = {}, {}
for _, id in ipairs(settled) do
  local is_lost = false
  for _, record in ipairs(records) do
    is_lost = is_lost or (not redis.call('ZSCORE', record, id) and #redis.call('XRANGE', KEYS[1], unpadded(id), unpadded(id)) > 0)
  end
  if not is_lost then
    append(ids, unpadded(id))
    append(done, id)
  end
end
if #ids > 0 then
  redis.call('XDEL', KEYS[1], unpack(ids))
  redis.call('ZREM', KEYS[2], unpack(done))
end
return #ids
