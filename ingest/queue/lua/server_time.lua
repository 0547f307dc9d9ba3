#!lua flags=no-writes
-- The time of the server that has a key.
-- KEYS: any key of the queue   returns: Unix milliseconds
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000)
