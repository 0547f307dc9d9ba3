-- The fields of an entry of the retry set: names and values, each a text; nil for anything else that another program has written.
local function waiting_fields(packed)
  local done, fields = pcall(cmsgpack.unpack, packed)
  if not done or type(fields) ~= 'table' or #fields == 0 or #fields % 2 == 1 then
    return nil
  end
  local count = 0
  for _ in pairs(fields) do
    count = count + 1
  end
  for i = 1, #fields do
    if type(fields[i]) ~= 'string' then
      return nil
    end
  end
  return count == #fields and fields or nil
end
