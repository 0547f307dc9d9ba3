-- needs: lists
-- Whether there are other groups, which have received an order before it goes back into a stream. Another group may exist in one lane only.
local function has_other_groups(...)
  for _, stream in ipairs({...}) do
    local groups = redis.pcall('XINFO', 'GROUPS', stream)
    if not groups.err and #groups > 1 then
      return true
    end
  end
  return false
end

-- The fields of an entry that is meant for one group, if there are others.
local function addressed(is_shared, group, fields)
  if is_shared then
    append(fields, 'ingest_group', group)
  end
  return fields
end
