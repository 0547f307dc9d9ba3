-- needs: lists, entry_fields
-- A dead letter without its document and unknown fields: its ID, a list of names and values, and its size in bytes.
local function dead_summary(entry)
  local about, size = {}, 0
  for i = 1, #entry[2], 2 do
    local name, value = entry[2][i], entry[2][i + 1]
    size = size + #name + #value
    if listed_fields[name] then
      append(about, name, value)
    end
  end
  return {entry[1], about, size}, size
end
