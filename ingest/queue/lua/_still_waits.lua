-- needs: lists, padded, order_of, entry_ids
-- The version that the entry that a waiting record names expects (0: none), if it still waits: it exists, it is an entry of that order,
-- and no group has received it. Otherwise nil.
-- After its delivery a worker may be fetching the order, and a later announcement may be about newer content.
local read_up_to  -- the greatest position of a group, or false if the user may not read it
local set_back = {}  -- groups whose position was set back, so that a consumer holds entries after it

local function read_groups()
  local replied, reply = pcall(redis.call, 'XINFO', 'GROUPS', KEYS[1])
  if not replied or reply.err then
    read_up_to = false
    return
  end
  read_up_to = ''
  for _, about in ipairs(reply) do
    local group = by_name(about)
    local position = group['last-delivered-id']
    if position ~= largest_id and #redis.call('XPENDING', KEYS[1], group.name, '(' .. position, '+', 1) > 0 then
      append(set_back, group.name)
    end
    if padded(position) > read_up_to then
      read_up_to = padded(position)
    end
  end
end

local function still_waits(record, order_id)
  local id = redis.call('GET', record)
  local entry = id and redis.call('XRANGE', KEYS[1], id, id)[1]
  if not entry or order_of(entry[2]) ~= order_id then
    return nil
  end
  if read_up_to == nil then
    read_groups()
  end
  if not read_up_to or padded(id) <= read_up_to then
    return nil
  end
  for _, group in ipairs(set_back) do
    if #redis.call('XPENDING', KEYS[1], group, id, id, 1) > 0 then
      return nil
    end
  end
  return tonumber(by_name(entry[2]).expected_version) or 0
end
