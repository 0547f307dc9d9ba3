-- Looks up the versions of orders that were announced while their entries waited, see enqueue.lua.
-- KEYS: the record of the version of each order   returns: the version of each order, or false without one
local versions = {}
for i, record in ipairs(KEYS) do
  versions[i] = redis.call('GET', record)
end
return versions
