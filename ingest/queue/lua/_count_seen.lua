-- needs: lists, seen
-- Counts an order whose dead letter with the same key exists. Returns whether it does.
local function count_seen(dead, seen, fields, time)
  local named = by_name(fields)
  local id, count = seen_of(seen, named.ingest_seen_key)
  local entry = id and redis.call('XRANGE', dead, id, id)[1]
  local letter = entry and by_name(entry[2]) or {}
  if not entry or letter.ingest_seen_key ~= named.ingest_seen_key or letter.order_id ~= named.order_id then
    return false
  end
  local value = string.format('%s %d %d %s', id, (tonumber(count) or 1) + 1, time, named.pushed_at or '0')
  redis.call('HSET', seen, named.ingest_seen_key, value)
  return true
end

-- Notes a new dead letter.
local function note_seen(seen, noted, fields)
  local key = by_name(fields).ingest_seen_key
  if key then
    redis.call('HSET', seen, key, noted)
  end
end
