-- Whether a consumer may reclaim from consumers whose heartbeats have ended. Its own heartbeat must have been kept for a whole
-- lifetime. After an outage of this server all heartbeats have ended, and all consumers have that long to send one.
local function may_declare_dead(alive, standing, consumer, time)
  local until_ = redis.call('ZSCORE', alive, consumer)
  local from = redis.call('ZSCORE', standing, consumer)
  return until_ and from and time < tonumber(until_) and time >= tonumber(from)
end

-- Whether it may release entries that were not renewed for longer than a lease. It needs no heartbeat for that: without heartbeats, leases
-- alone decide.
local function may_release_idle(alive, standing, consumer, time)
  return not redis.call('ZSCORE', alive, consumer) or may_declare_dead(alive, standing, consumer, time)
end
