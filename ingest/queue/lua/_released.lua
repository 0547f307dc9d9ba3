-- Whether a pending entry was released: it has no owner (XNACK), or it counts as idle since 1970.
local function is_released(pending)
  return pending[2] == '' or pending[3] >= released_idle_ms
end
