-- needs: lists, now, order_of, owned, gone, erased, results, finish, count_seen
-- Moves one owned entry to the dead letters, in the order and with the guard of reschedule.lua. Where results are kept, the same step adds
-- its result. The entry of an erased order is finished without a dead letter. An order that is dead already, with the same key, adds to the
-- count of its dead letter.
-- KEYS: stream, settled, clock, record of the move, dead, dead seen, erased, results if they are kept
-- ARGV: group, consumer, entry ID, age of results in ms, events, fields
-- returns: 1 if moved, 2 if the entry is gone and nothing was written, 0 if it is not moved
local fields = {unpack(ARGV, 6)}
local order = order_of(fields)
if not is_owned(KEYS[1], ARGV[1], ARGV[2], ARGV[3], order) then
  return is_gone(KEYS[1], ARGV[1], ARGV[3], order) and redis.call('EXISTS', KEYS[4]) == 0 and 2 or 0
end
local erased = is_erased(KEYS[7], order)
if KEYS[8] then
  trim_results(KEYS[8], ARGV[4])
  add_results(KEYS[8], erased and cmsgpack.pack({{'order_id', order, 'outcome', 'erased'}}) or ARGV[5])
end
if erased then
  finish(KEYS[1], KEYS[2], ARGV[1], {ARGV[3]})
  return 0
end
local time = now(KEYS[3])
if not count_seen(KEYS[5], KEYS[6], fields, time) then
  append(fields, 'dead_at', string.format('%d', time))
  note_seen(KEYS[6], redis.call('XADD', KEYS[5], '*', unpack(fields)), fields)
end
finish(KEYS[1], KEYS[2], ARGV[1], {ARGV[3]})
redis.call('SET', KEYS[4], '', 'EX', record_seconds)
return 1
