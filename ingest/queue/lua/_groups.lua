-- needs: lists
-- A group of a stream, by the names that XINFO GROUPS uses. Nil without that group or that stream.
local function find_group(stream, name)
  local groups = redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}
  for _, about in ipairs(groups) do
    local group = by_name(about)
    if group.name == name then
      return group, #groups
    end
  end
end
