-- needs: lists
-- How often an order became the same dead letter. A hash contains one field for each dead letter that has an `ingest_seen_key`. Its value is
-- the ID of the dead letter, and from the second time on, how often the order was seen, when last (ms), and when its last document was
-- accepted (0 without a document).
local function seen_of(seen, key)
  return ((key and redis.call('HGET', seen, key)) or ''):match('^(%S+) ?(%d*) ?(%d*) ?(%d*)$')
end

-- How often and when last the order of this dead letter was seen, and when its last document was accepted. Nil if it was seen once.
local function seen_again(seen, id, named)
  local known, count, at, pushed = seen_of(seen, named.ingest_seen_key)
  if known == id and count ~= '' then
    return count, at, pushed
  end
end

-- Forgets a dead letter that is deleted.
local function forget_seen(seen, id, named)
  if seen_of(seen, named.ingest_seen_key) == id then
    redis.call('HDEL', seen, named.ingest_seen_key)
  end
end
