-- One entry counts as idle since 1970, so it is claimable at once, and its delivery is taken off the count.
local function give_back(stream, group, consumer, pending)
  local id, idle, count = pending[1], pending[3], pending[4]
  if idle < 1e12 then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'TIME', 0, 'RETRYCOUNT', math.max(0, count - 1), 'JUSTID')
  end
end
