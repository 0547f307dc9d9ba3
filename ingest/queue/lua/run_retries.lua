#!lua flags=allow-oom
-- needs: now
-- Makes the next attempt of entries due now. Workers move entries that are due. An entry that is due already keeps its time.
-- KEYS: retry, clock   ARGV: names of entries   returns: how many still wait
local time, waiting = now(KEYS[2]), 0
for _, name in ipairs(ARGV) do
  local due = redis.call('ZSCORE', KEYS[1], name)
  if due then
    waiting = waiting + 1
    if tonumber(due) > time then
      redis.call('ZADD', KEYS[1], time, name)
    end
  end
end
return waiting
