-- Whether an entry is pending for this consumer: one that has lost it, settled it or released it may not move it. If so, its
-- lease is renewed: a write that is allowed without memory, after which Redis lets the whole script through.
local function is_owned(stream, group, consumer, id)
  local pending = redis.call('XPENDING', stream, group, id, id, 1)
  local owned = #pending == 1 and pending[1][2] == consumer and not is_released(pending[1])
  if owned then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
  end
  return owned
end
