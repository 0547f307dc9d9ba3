-- The fields of an entry in the retry set: a list of names and values. Nil for other content, which another program has written.
local function waiting_fields(packed)
  local done, fields = pcall(cmsgpack.unpack, packed)
  if not done or type(fields) ~= 'table' or #fields == 0 or #fields % 2 == 1 then
    return nil
  end
  local count = 0
  for _, field in pairs(fields) do
    if type(field) ~= 'string' then
      return nil
    end
    count = count + 1
  end
  return count == #fields and fields or nil
end
