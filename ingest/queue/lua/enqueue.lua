-- Accepts one batch of a producer: all of it, or none, and never twice.
-- KEYS: stream, the producer's record, then the idempotency record of each submission that has a key
-- ARGV: backlog limit (0: none), producer, number of the batch, lifetime of idempotency records (ms), how many orders have
--   no key, those orders; then for each submission with a key: its digest, how many orders it has, its orders
-- An order is its ID, or a MessagePack array of its fields' names and values.
-- returns: -1 and how many orders there is room for, if the batch would pass the limit; else how many orders were added,
--   and which submissions with a key (1: the first) were refused, because the key belongs to other orders
local limit, lifetime, plain = tonumber(ARGV[1]), ARGV[4], tonumber(ARGV[5])

local function fields(order)
  -- An ID is ASCII; a MessagePack array begins with a byte above that.
  if order:byte(1) < 128 then
    return 'order_id', order
  end
  return unpack(cmsgpack.unpack(order))
end

local function add(first, last)
  for i = first, last do
    redis.call('XADD', KEYS[1], '*', fields(ARGV[i]))
  end
end

-- Everything is read before anything is written: an error leaves nothing half done.
local is_added = plain == 0 or was_added()
local needed = is_added and 0 or plain
local new, refused, digests = {}, {}, {}
local at = 6 + plain
for i = 3, #KEYS do
  local digest, count = ARGV[at], tonumber(ARGV[at + 1])
  -- Two calls with one key may share a batch.
  local known = digests[KEYS[i]] or redis.call('GET', KEYS[i])
  if not known then
    digests[KEYS[i]] = digest
    new[#new + 1] = {KEYS[i], digest, at + 2, at + 1 + count}
    needed = needed + count
  elseif known ~= digest then
    refused[#refused + 1] = i - 2
  end
  at = at + 2 + count
end
if limit > 0 and needed > 0 then
  local room = limit - redis.call('XLEN', KEYS[1])
  if needed > room then
    return {-1, math.max(0, room)}
  end
end

if not is_added then
  if add_first(fields(ARGV[6])) then
    add(7, 5 + plain)
  else
    needed = needed - plain
  end
end
for _, submission in ipairs(new) do
  local record, digest, first, last = unpack(submission)
  redis.call('SET', record, digest, 'PX', lifetime)
  add(first, last)
end
return {needed, unpack(refused)}
