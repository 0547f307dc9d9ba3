-- Ends a call, or renews its lease, if it is still this attempt's.
-- KEYS: the call's record: see call_begin
-- ARGV: the attempt's token, for how long the record is kept (ms), the new record (empty: the call still runs)
local known = redis.call('GET', KEYS[1])
if known and known:match('^running (%S+)') == ARGV[1] then
  local time = redis.call('TIME')
  local to = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2])
  redis.call('SET', KEYS[1], ARGV[3] ~= '' and ARGV[3] or 'running ' .. ARGV[1] .. ' ' .. to, 'PX', ARGV[2])
end
