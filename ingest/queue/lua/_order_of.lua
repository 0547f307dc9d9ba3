-- The order that an entry names: nothing, if none. Named twice, the last one counts, as in a mapping.
local function order_of(fields)
  local order = ''
  for i = 1, #fields, 2 do
    if fields[i] == 'order_id' then
      order = fields[i + 1]
    end
  end
  return order
end
