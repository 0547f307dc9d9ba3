-- The queue's clock, in ms since 1970, by which all times that workers compare are taken. It is Redis' own clock, but neither goes back nor
-- jumps ahead. That clock may: an operator or NTP sets it, or a failover leads to a host with another time. heartbeat.lua then notes by how
-- much the queue's clock is ahead (negative: behind). It loses this difference at a hundredth of the speed of time, so that no two times
-- change their order.
-- Returns the time, Redis' own time, by how much the noted difference puts the queue's clock ahead, and the time of the last heartbeat.
local function now(clock)
  local time = redis.call('TIME')
  local own = time[1] * 1000 + math.floor(time[2] / 1000)
  local noted = redis.call('HMGET', clock, 'ahead', 'noted_at', 'latest')
  local lost = math.floor(math.max(0, own - (tonumber(noted[2]) or own)) / 100)
  local ahead = tonumber(noted[1]) or 0
  ahead = ahead > 0 and math.max(0, ahead - lost) or math.min(0, ahead + lost)
  local latest = tonumber(noted[3]) or 0
  return math.max(own + ahead, latest), own, ahead, latest
end
