-- needs: lists
-- The order that an entry names, or an empty text.
local function order_of(fields)
  return by_name(fields).order_id or ''
end
