-- needs: now, order_of, owned, gone, erased, waiting_fields, finish
-- Moves one owned entry to the retry set. Sent twice, it moves nothing the second time, because the entry is no longer pending, and the record
-- of the move proves that it was moved. An entry that is gone without a record is lost (a failover, a flush). This consumer has a copy,
-- which is put into the retry set as well. An error in between (an ACL, a key of another type) leaves the entry in both places rather than
-- in none. The entry of an erased order is finished instead.
-- KEYS: stream, settled, clock, record of the move, retry, retry entries, retry announced, erased
-- ARGV: group, consumer, entry ID, the name under which it waits, delay in ms, fields
-- returns: 1 if moved, 2 if it was gone and waits now, 0 if it is not moved
local fields = {unpack(ARGV, 6)}
local order = order_of(fields)
local owned = is_owned(KEYS[1], ARGV[1], ARGV[2], ARGV[3], order)
if not owned and (redis.call('EXISTS', KEYS[4]) == 1 or not is_gone(KEYS[1], ARGV[1], ARGV[3], order)) then
  return 0
end
if is_erased(KEYS[8], order) then
  if owned then
    finish(KEYS[1], KEYS[2], ARGV[1], {ARGV[3]})
  end
  return 0
end

-- It waits under its ID, so that the same order put there again changes nothing. An entry of another order may have the same ID, see _gone.lua.
local name = ARGV[4]
local packed = redis.call('HGET', KEYS[6], name)
if packed and order_of(waiting_fields(packed) or {}) ~= order then
  name = name .. ':' .. order
end
redis.call('HSET', KEYS[6], name, cmsgpack.pack(fields))
-- A clock that was set ahead counts until the next heartbeat. The retry would be late by as much.
local time, _, _, latest = now(KEYS[3])
local since = latest > 0 and math.min(time, latest + 60000) or time
redis.call('ZADD', KEYS[5], since + tonumber(ARGV[5]), name)
local announced = by_name(fields).enqueued_at
if announced then
  redis.call('ZADD', KEYS[7], announced, name)
end
if owned then
  finish(KEYS[1], KEYS[2], ARGV[1], {ARGV[3]})
end
redis.call('SET', KEYS[4], '', 'EX', record_seconds)
return owned and 1 or 2
