-- Entries count as idle since 1970, so they are claimable immediately, and their delivery is taken off the count.
local function release_uncounted(stream, group, consumer, entries)
  local by_count = {}
  for _, pending in ipairs(entries) do
    local count = math.max(0, pending[4] - 1)
    by_count[count] = by_count[count] or {'XCLAIM', stream, group, consumer, 0}
    table.insert(by_count[count], pending[1])
  end
  for count, command in pairs(by_count) do
    for _, part in ipairs({'TIME', 0, 'RETRYCOUNT', count, 'JUSTID'}) do
      command[#command + 1] = part
    end
    redis.call(unpack(command))
  end
end
