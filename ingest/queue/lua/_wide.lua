-- needs: lists, entry_fields
-- The fields of an entry, most of them packed into one if they are many, as `flat` in ingest.queue.layout.entries does. A command
-- of a script can take about 8,000 parts (names and values).
local most_parts = 2000

local function narrow(fields)
  if #fields <= most_parts then
    return fields
  end
  local kept, packed = {}, {}
  for i = 1, #fields, 2 do
    append(known_fields[fields[i]] and kept or packed, fields[i], fields[i + 1])
  end
  if #kept > most_parts then
    kept, packed = {}, fields
  end
  append(kept, 'ingest_packed', cmsgpack.pack(packed))
  return kept
end
