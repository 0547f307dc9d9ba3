-- As _release_counted.lua, where the server has a command for it (Redis 8.8). It keeps pending entries in the order of their idle time, too:
-- to count one as idle since 1970 it goes through all others, 1 ms for 100,000.
local function release_counted(stream, group, consumer, ids, is_lost)
  local command = {'XNACK', stream, group, 'FAIL', 'IDS', #ids, unpack(ids)}
  if is_lost then
    for _, part in ipairs({'RETRYCOUNT', 0, 'FORCE'}) do
      command[#command + 1] = part
    end
  end
  redis.call(unpack(command))
end
