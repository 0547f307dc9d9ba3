-- Marks what goes back into the stream as meant for this group, where there are others: they have had the order already.
local function has_other_groups(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  return not groups.err and #groups > 1
end

local function addressed(is_shared, group, fields)
  if is_shared then
    fields[#fields + 1] = 'ingest_group'
    fields[#fields + 1] = group
  end
  return fields
end
