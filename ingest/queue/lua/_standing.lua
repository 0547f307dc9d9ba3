-- Whether the silence of others may count against them: decided here, for whoever wants to take something from them.
-- A consumer whose own heartbeat has not been kept without a break for a whole lifetime may not: after an outage of this server
-- nobody has been heard, and all have that long to be heard again.
local function has_standing(alive, standing, consumer, time)
  local until_ = redis.call('ZSCORE', alive, consumer)
  local from = redis.call('ZSCORE', standing, consumer)
  return until_ and from and time < tonumber(until_) and time >= tonumber(from)
end

-- To take a heartbeat that has ended for a death, it takes a heartbeat of one's own.
local function may_declare_dead(alive, standing, consumer, time)
  return has_standing(alive, standing, consumer, time)
end

-- To release what was not renewed for longer than a lease, it does not: who sends no heartbeats goes by the leases alone.
local function may_release_idle(alive, standing, consumer, time)
  return not redis.call('ZSCORE', alive, consumer) or has_standing(alive, standing, consumer, time)
end
