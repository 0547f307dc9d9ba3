-- Whether a pending entry was released. It has no owner (XNACK), or counts as idle since 1970. No other entry was idle for 30 years.
local function is_released(pending)
  return pending[2] == '' or pending[3] >= 10 ^ 12
end
