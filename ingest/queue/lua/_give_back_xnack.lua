-- As _give_back.lua, where the server has a command for it (Redis 8.8): the entry is nobody's, and readers that claim wake up.
local function give_back(stream, group, consumer, pending)
  redis.call('XNACK', stream, group, 'SILENT', 'IDS', 1, pending[1])
end
