-- How many entries a stream has lost since its beginning, finished or deleted; nothing where the server does not tell.
-- KEYS: stream   returns: a number, or nil
local replied, reply = pcall(redis.call, 'XINFO', 'STREAM', KEYS[1])
if not replied or reply.err then
  return nil
end
local facts = {}
for i = 1, #reply, 2 do
  facts[reply[i]] = reply[i + 1]
end
return facts['entries-added'] and facts['entries-added'] - facts['length']
