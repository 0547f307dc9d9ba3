-- Whether the entry that a waiting record names still waits: it is there, it is that order's, and no group has been given it. Once
-- it has been delivered, its order may be being fetched: what is announced after that may be newer.
local read_up_to  -- the greatest position of a group; false if we may not know it
local set_back = {}  -- groups with entries after their position that a consumer holds, because they were set back

local function read_groups()
  local replied, reply = pcall(redis.call, 'XINFO', 'GROUPS', KEYS[1])
  if not replied or reply.err then
    read_up_to = false
    return
  end
  read_up_to = ''
  for _, facts in ipairs(reply) do
    local group = {}
    for i = 1, #facts, 2 do
      group[facts[i]] = facts[i + 1]
    end
    local position = group['last-delivered-id']
    if #redis.call('XPENDING', KEYS[1], group.name, '(' .. position, '+', 1) > 0 then
      set_back[#set_back + 1] = group.name
    end
    if padded(position) > read_up_to then
      read_up_to = padded(position)
    end
  end
end

local function is_of(entry, order_id)
  for i = 1, #entry, 2 do
    if entry[i] == 'order_id' then
      return entry[i + 1] == order_id
    end
  end
  return false
end

local function still_waits(record, order_id)
  local id = redis.call('GET', record)
  local entry = id and redis.call('XRANGE', KEYS[1], id, id)[1]
  if not entry or not is_of(entry[2], order_id) then
    return false
  end
  if read_up_to == nil then
    read_groups()
  end
  if not read_up_to or padded(id) <= read_up_to then
    return false
  end
  for _, group in ipairs(set_back) do
    if #redis.call('XPENDING', KEYS[1], group, id, id, 1) > 0 then
      return false
    end
  end
  return true
end

