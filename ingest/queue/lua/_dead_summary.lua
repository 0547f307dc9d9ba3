-- needs: lists, entry_fields, seen
-- A dead letter without its document and unknown fields: its ID, a list of names and values, and its size in bytes. With the count of the
-- same dead letters, see _seen.lua.
local function dead_summary(seen, entry)
  local about, size = {}, 0
  for i = 1, #entry[2], 2 do
    local name, value = entry[2][i], entry[2][i + 1]
    size = size + #name + #value
    if listed_fields[name] then
      append(about, name, value)
    end
  end
  local count, at = seen_again(seen, entry[1], by_name(entry[2]))
  if count then
    append(about, 'ingest_seen', count, 'ingest_last_seen_at', at)
  end
  return {entry[1], about, size}, size
end
