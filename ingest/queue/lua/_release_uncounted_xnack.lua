-- As _release_uncounted.lua, where the server has a command for it (Redis 8.8): the entries have no owner, and readers that claim wake up.
local function release_uncounted(stream, group, consumer, entries)
  local command = {'XNACK', stream, group, 'SILENT', 'IDS', #entries}
  for _, pending in ipairs(entries) do
    command[#command + 1] = pending[1]
  end
  if #entries > 0 then
    redis.call(unpack(command))
  end
end
