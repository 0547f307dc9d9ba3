-- The queue's clock, in ms since 1970, by which all times that workers compare are taken. It is Redis' own clock, but never goes back. That
-- clock may: an operator sets it, or a failover leads to a host whose clock is behind. heartbeat.lua then notes by how much the queue's
-- clock is ahead. It loses its lead at a hundredth of the speed of time, so that no two times change their order.
-- Returns the time, Redis' own time, and by how much the noted lead puts the queue's clock ahead.
local function now(clock)
  local time = redis.call('TIME')
  local own = time[1] * 1000 + math.floor(time[2] / 1000)
  local noted = redis.call('HMGET', clock, 'ahead', 'noted_at', 'latest')
  local passed = math.max(0, own - (tonumber(noted[2]) or own))
  local ahead = math.max(0, (tonumber(noted[1]) or 0) - math.floor(passed / 100))
  return math.max(own + ahead, tonumber(noted[3]) or 0), own, ahead
end
