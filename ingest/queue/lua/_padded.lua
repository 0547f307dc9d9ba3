-- An entry ID as a text that sorts as IDs do, and back. Numbers of 64 bits would be rounded.
local function padded(id)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. '-' .. string.rep('0', 20 - #seq) .. seq
end

local function unpadded(text)
  local ms, seq = text:match('^0*(%d+)-0*(%d+)$')
  return ms .. '-' .. seq
end
