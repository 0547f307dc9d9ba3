-- The most parts (names and values) that a command of a script can have is about 8,000. A larger entry is packed, like
-- `flat` in ingest.queue.layout.entries does.
local most_parts = 2000

local function narrow(fields)
  if #fields <= most_parts then
    return fields
  end
  local kept, packed = {}, {}
  for i = 1, #fields, 2 do
    -- Named twice, the last one counts, as in a mapping.
    local list = known_fields[fields[i]] and kept or packed
    list[#list + 1] = fields[i]
    list[#list + 1] = fields[i + 1]
  end
  if #kept > most_parts then
    kept, packed = {}, fields
  end
  kept[#kept + 1] = 'ingest_packed'
  kept[#kept + 1] = cmsgpack.pack(packed)
  return kept
end
