-- Whether the entry that a waiting record names still waits: it is there, it is that order's, and no group has been given it. Once
-- it has been delivered, its order may be being fetched: what is announced after that may be newer.
local groups

-- The groups of the stream; nil if we may not know them.
local function read_groups()
  local replied, reply = pcall(redis.call, 'XINFO', 'GROUPS', KEYS[1])
  if not replied or reply.err then
    return nil
  end
  local found = {}
  for _, facts in ipairs(reply) do
    local group = {}
    for i = 1, #facts, 2 do
      group[facts[i]] = facts[i + 1]
    end
    found[#found + 1] = {group.name, padded(group['last-delivered-id'])}
  end
  return found
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
  groups = groups or read_groups()
  for _, group in ipairs(groups or {}) do
    -- A group that was set back has entries after its position that a worker holds.
    if padded(id) <= group[2] or #redis.call('XPENDING', KEYS[1], group[1], id, id, 1) > 0 then
      return false
    end
  end
  return groups ~= nil
end

