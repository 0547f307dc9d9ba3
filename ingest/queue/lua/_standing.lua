-- Only who has itself been heard without a break for a whole lifetime of a heartbeat may take the silence of others for death.
-- After an outage of this server everybody has been silent: all have that long to be heard again.
local function has_standing(alive, standing, consumer, time)
  local until_ = redis.call('ZSCORE', alive, consumer)
  local from = redis.call('ZSCORE', standing, consumer)
  return until_ and from and time < tonumber(until_) and time >= tonumber(from)
end
