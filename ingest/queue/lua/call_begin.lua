-- Begins a call, unless it was made before or another attempt is working on it.
-- KEYS: the call's record: `running TOKEN UNTIL` or `done FINGERPRINT ACCEPTED DUPLICATES`
-- ARGV: the attempt's token, the same when the script is sent again, its lease (ms)
-- returns: {begun}, {running, for how long at most (ms)} or {done, the payload's fingerprint, the two numbers of the response}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('GET', KEYS[1])
if not known or known == 'ended' or known:match('^running (%S+)') == ARGV[1] then
  redis.call('SET', KEYS[1], 'running ' .. ARGV[1] .. ' ' .. string.format('%.0f', now + ARGV[2]), 'PX', ARGV[2])
  return {'begun'}
end
local to = known:match('^running %S+ (%d+)$')
if to then
  return {'running', math.max(0, to - now)}
end
return {'done', known:match('^done (%S+) (%d+) (%d+)$')}
