-- The queue's clock, in ms since 1970: all times that workers compare are its. It is Redis' own clock, but never goes back when
-- that does (it was set, or a failover went to a host whose clock is behind): heartbeat.lua then notes by how much the
-- queue's clock is ahead, and it loses that again at a hundredth of the speed of time, so that no two times change their order.
-- Returns the time, Redis' own time, and how far the first is ahead by what was noted.
local function now(clock)
  local time = redis.call('TIME')
  local own = time[1] * 1000 + math.floor(time[2] / 1000)
  local noted = redis.call('HMGET', clock, 'ahead', 'noted_at', 'latest')
  local passed = math.max(0, own - (tonumber(noted[2]) or own))
  local ahead = math.max(0, (tonumber(noted[1]) or 0) - math.floor(passed / 100))
  return math.max(own + ahead, tonumber(noted[3]) or 0), own, ahead
end
