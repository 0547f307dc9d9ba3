-- Marks what goes back into a stream as meant for this group, where there are others: they have had the order already. Another
-- group may have come to one of the lanes only.
local function has_other_groups(...)
  for _, stream in ipairs({...}) do
    local groups = redis.pcall('XINFO', 'GROUPS', stream)
    if not groups.err and #groups > 1 then
      return true
    end
  end
  return false
end

local function addressed(is_shared, group, fields)
  if is_shared then
    fields[#fields + 1] = 'ingest_group'
    fields[#fields + 1] = group
  end
  return fields
end
