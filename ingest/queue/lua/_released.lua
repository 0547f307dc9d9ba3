-- Whether a pending entry was released: nobody owns it (XNACK), or it counts as idle since 1970. Nothing else is idle for 30 years.
local function is_released(pending)
  return pending[2] == '' or pending[3] >= 1e12
end
