-- Released entries count as idle since 1970, so they are claimable immediately. Their deliveries stay counted. What is lost is
-- pending again, as if it had not been delivered.
local function release_counted(stream, group, consumer, ids, is_lost)
  local command = {'XCLAIM', stream, group, consumer, 0, unpack(ids)}
  for _, part in ipairs(is_lost and {'FORCE', 'TIME', 0, 'RETRYCOUNT', 0, 'JUSTID'} or {'TIME', 0, 'JUSTID'}) do
    command[#command + 1] = part
  end
  redis.call(unpack(command))
end
