-- Whether a pending entry was released: nobody owns it (XNACK), or it counts as idle since 1970.
local function is_released(pending)
  return pending[2] == '' or pending[3] >= released_idle_ms
end
