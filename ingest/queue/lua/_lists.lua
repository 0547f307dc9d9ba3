-- Adds values to the end of a list.
local function append(list, ...)
  for i = 1, select('#', ...) do
    list[#list + 1] = (select(i, ...))
  end
end

-- A list of names and values as a table. Of a name that is there twice, the last value counts.
local function by_name(list)
  local values = {}
  for i = 1, #list, 2 do
    values[list[i]] = list[i + 1]
  end
  return values
end
