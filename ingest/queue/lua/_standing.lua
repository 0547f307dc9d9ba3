-- Whether a consumer may act on it that others have stopped sending heartbeats or renewing leases: decided here alone.
-- One whose own heartbeat was not kept without a break for a whole lifetime may not: after an outage of this server all
-- heartbeats have ended, and all consumers have that long to send one.
local function has_standing(alive, standing, consumer, time)
  local until_ = redis.call('ZSCORE', alive, consumer)
  local from = redis.call('ZSCORE', standing, consumer)
  return until_ and from and time < tonumber(until_) and time >= tonumber(from)
end

-- To reclaim from a consumer whose heartbeat has ended, it needs a heartbeat of its own.
local function may_declare_dead(alive, standing, consumer, time)
  return has_standing(alive, standing, consumer, time)
end

-- To release what was not renewed for longer than a lease, it needs none: without heartbeats, leases alone decide.
local function may_release_idle(alive, standing, consumer, time)
  return not redis.call('ZSCORE', alive, consumer) or has_standing(alive, standing, consumer, time)
end
