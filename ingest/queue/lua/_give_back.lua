-- One entry counts as idle since 1970, so it is claimable at once, and its delivery is taken off the count.
local function give_back(stream, group, consumer, pending)
  local count = math.max(0, pending[4] - 1)
  redis.call('XCLAIM', stream, group, consumer, 0, pending[1], 'TIME', 0, 'RETRYCOUNT', count, 'JUSTID')
end
