-- A dead letter: its ID, an array of names and values, and how many bytes it has if only a part of them is told, otherwise 0. All are told
-- of an entry of at most `most` bytes; of a larger one, all but its document and unknown fields. Second, its bytes.
local function dead_summary(entry, most)
  local size = 0
  for _, part in ipairs(entry[2]) do
    size = size + #part
  end
  if size <= most then
    return {entry[1], entry[2], 0}, size
  end
  local about = {}
  for i = 1, #entry[2], 2 do
    if listed_fields[entry[2][i]] then
      about[#about + 1] = entry[2][i]
      about[#about + 1] = entry[2][i + 1]
    end
  end
  return {entry[1], about, size}, size
end
