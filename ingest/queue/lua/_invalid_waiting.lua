-- The fields of the dead letter for content of the retry set that is not an entry.
local function invalid_waiting(packed, time)
  return {'reason', 'invalid_message', 'error', 'what waited in the retry set is not an entry', 'content', packed,
    'dead_at', string.format('%d', time)}
end
