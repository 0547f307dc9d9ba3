-- needs: lists
-- How often an order became the same dead letter. One field of a hash for each dead letter that has a `ingest_seen_key`: the ID of the dead letter,
-- and from the second time on, how often the order was seen, when last (ms), and when its last document was accepted (0: it has none).

-- What is noted for the dead letter with these fields: how often and when last, and when the last document was accepted. Nil if it was seen
-- once.
local function seen_again(seen, id, named)
  local noted = named.ingest_seen_key and redis.call('HGET', seen, named.ingest_seen_key)
  local known, count, at, pushed = (noted or ''):match('^(%S+) (%d+) (%d+) (%d+)$')
  if known == id then
    return count, at, pushed
  end
end

-- Counts an order that is dead already, with the same key. Returns whether it is.
local function count_seen(dead, seen, fields, time)
  local named = by_name(fields)
  local noted = named.ingest_seen_key and redis.call('HGET', seen, named.ingest_seen_key)
  local id = noted and noted:match('^%S+')
  local entry = id and redis.call('XRANGE', dead, id, id)[1]
  local letter = entry and by_name(entry[2]) or {}
  if not entry or letter.ingest_seen_key ~= named.ingest_seen_key or letter.order_id ~= named.order_id then
    return false
  end
  local count = (seen_again(seen, id, named) or 1) + 1
  local value = string.format('%s %d %d %s', id, count, time, named.pushed_at or '0')
  redis.call('HSET', seen, named.ingest_seen_key, value)
  return true
end

local function note_seen(seen, id, fields)
  local key = by_name(fields).ingest_seen_key
  if key then
    redis.call('HSET', seen, key, id)
  end
end

-- Forgets a dead letter that is deleted.
local function forget_seen(seen, id, named)
  local noted = named.ingest_seen_key and redis.call('HGET', seen, named.ingest_seen_key)
  if noted and noted:match('^%S+') == id then
    redis.call('HDEL', seen, named.ingest_seen_key)
  end
end
