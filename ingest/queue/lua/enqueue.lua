-- needs: lists, now, still_waits
-- Accepts one batch of a producer: all of it or none, and never twice.
-- KEYS: stream, the producer's record, clock, pushed, then for each submission that is not plain: its idempotency record, if it has a key,
--   and if it is coalesced, the waiting record and the record of the version of each of its orders without a document
-- ARGV: backlog limit (0: none), producer, number of the batch, lifetime of idempotency records (ms), how many partitions
--   the producer has divided its orders by, how many orders are plain, those orders, then for each other submission: its digest
--   (empty: no key), for how long its orders are coalesced (ms, 0: not), how many orders it has, its orders
-- An order is its ID, if that begins with an ASCII character, or a MessagePack array of its fields' names and values.
-- returns: how many orders were added, and for each submission that is not plain how many of its orders were added, now or when
--   it was sent before (-1: none, because its key belongs to other orders, or -2 less that number: it was sent before, under its key).
--   If the batch would exceed the limit: -1, how many orders there is room for, and for each submission that is not plain how many
--   it would add. If the queue is closed, or orders are divided by another number of partitions now: -2
local limit, lifetime, plain = tonumber(ARGV[1]), ARGV[4], tonumber(ARGV[6])

-- When a document is accepted, in microseconds by the queue's clock, and later than all documents before it. Of two documents without
-- their own version the later one wins, even in different lanes. Entry IDs would not do: each lane counts its own, and they stand
-- still while Redis' clock, set back, catches up.
local latest_push
local function accepted_at()
  if not latest_push then
    latest_push = math.max(now(KEYS[3]) * 1000, (tonumber(redis.call('GET', KEYS[4])) or 0) + 1)
  else
    latest_push = latest_push + 1
  end
  return string.format('%.0f', latest_push)
end

-- A MessagePack array begins with a byte that is not ASCII.
local function is_id(order)
  return order:byte(1) < 128
end

local function fields(order)
  if is_id(order) then
    return 'order_id', order
  end
  local named = cmsgpack.unpack(order)
  if by_name(named).document then
    append(named, 'pushed_at', accepted_at())
  end
  return unpack(named)
end

-- The ID of an order without a document, and the version that it expects (0: none), or nil for an order with one.
local function bare(order)
  if is_id(order) then
    return order, 0
  end
  local named = by_name(cmsgpack.unpack(order))
  if not named.document then
    return named.order_id, tonumber(named.expected_version) or 0
  end
end

-- Everything is read before anything is written, so that an error leaves nothing half done.
local others = {}
local has_unkeyed = plain > 0
local at, next_key = 7 + plain, 5
while ARGV[at] do
  local other = {digest = ARGV[at], coalesce = tonumber(ARGV[at + 1]), first = at + 3, waiting = {}, adds = {}}
  other.last = at + 2 + tonumber(ARGV[at + 2])
  at = other.last + 1
  if other.digest ~= '' then
    other.record = KEYS[next_key]
    next_key = next_key + 1
  else
    has_unkeyed = true
  end
  for i = other.first, other.coalesce > 0 and other.last or 0 do
    local order_id, version = bare(ARGV[i])
    if order_id then
      other.waiting[i] = {KEYS[next_key], order_id, KEYS[next_key + 1], version}
      next_key = next_key + 2
    end
  end
  append(others, other)
end

-- A producer sends one batch at a time, so the number of its last one is enough. An older number belongs to a batch that the producer
-- has sent again since, or given up, and that was late on its way.
local is_added = not has_unkeyed or tonumber(redis.call('GET', KEYS[2]) or -1) >= tonumber(ARGV[3])
local needed = is_added and 0 or plain
local by_record, announced, newer = {}, {}, {}

-- Chooses which orders of a submission need an entry.
local function choose(other)
  for i = other.first, other.last do
    local record, order_id, version_record, version = unpack(other.waiting[i] or {})
    local expected = record and (announced[record] or still_waits(record, order_id))
    if not expected then
      append(other.adds, i)
      if record then
        announced[record] = version
      end
    elseif version > math.max(expected, newer[version_record] or 0) then
      newer[version_record] = version
    end
  end
  needed = needed + #other.adds
  return #other.adds
end

-- The record of an idempotency key: the digest of its orders, and how many of them were added, unless all were.
local function read_record(record)
  local known = redis.call('GET', record)
  if known then
    local digest, added = known:match('^([^ ]*) ?(.*)$')
    return {digest = digest, answer = tonumber(added)}
  end
end

for _, other in ipairs(others) do
  other.count = other.last - other.first + 1
  if other.record then
    -- Two calls with one key may share a batch.
    local known = by_record[other.record] or read_record(other.record)
    if not known then
      other.is_new = true
      known = {digest = other.digest, answer = choose(other)}
    end
    by_record[other.record] = known
    other.answer = known.digest ~= other.digest and -1 or known.answer or other.count
    other.is_repeated = not other.is_new and other.answer >= 0
  else
    -- If they were added before, it is not known which of them waited then.
    other.answer = is_added and other.count or choose(other)
  end
end
-- A batch that was added before the queue was closed is still confirmed.
if needed > 0 then
  local closed, divided_by = unpack(redis.call('HMGET', KEYS[3], 'closed', 'divided_by'))
  if closed or (divided_by and divided_by ~= ARGV[5]) then
    return {-2}
  end
end
if limit > 0 and needed > 0 then
  local room = limit - redis.call('XLEN', KEYS[1])
  if needed > room then
    local reply = {-1, math.max(0, room)}
    for _, other in ipairs(others) do
      append(reply, #other.adds)
    end
    return reply
  end
end

-- Documents and idempotency records take memory by their size, not by the number of entries. They leave a quarter of it to IDs, and to
-- entries that workers have to move.
local function is_nearly_full()
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then
    return false
  end
  local used, most = tonumber(info:match('used_memory:(%d+)')), tonumber(info:match('maxmemory:(%d+)'))
  return used and most and most > 0 and used > 0.75 * most
end

local function takes_memory()
  for i = 7, 6 + plain do
    if not is_id(ARGV[i]) and not is_added then
      return true
    end
  end
  for _, other in ipairs(others) do
    if other.is_new or (#other.adds > 0 and not is_id(ARGV[other.adds[1]])) then
      return true
    end
  end
end

if takes_memory() and is_nearly_full() then
  return redis.error_reply('OOM documents and idempotency keys may take three quarters of the memory')
end

-- A waiting entry cannot be changed. Its reader looks up the newest version that was announced in the last minute, for which a replica of
-- the shop may be behind.
for record, version in pairs(newer) do
  if version > (tonumber(redis.call('GET', record)) or 0) then
    redis.call('SET', record, string.format('%.0f', version), 'EX', 60)
  end
end

local added = 0
local function add(order)
  added = added + 1
  return redis.call('XADD', KEYS[1], '*', fields(order))
end

for i = 7, is_added and 0 or 6 + plain do
  add(ARGV[i])
end
for _, other in ipairs(others) do
  for _, i in ipairs(other.adds) do
    local id = add(ARGV[i])
    if other.waiting[i] then
      redis.call('SET', other.waiting[i][1], id, 'PX', other.coalesce)
    end
  end
  if other.is_new then
    local is_whole = other.answer == other.count
    redis.call('SET', other.record, is_whole and other.digest or other.digest .. ' ' .. other.answer, 'PX', lifetime)
  end
end
-- After the orders: an error in between adds them twice, rather than never.
if added > 0 and has_unkeyed and not is_added then
  redis.call('SET', KEYS[2], ARGV[3], 'EX', record_seconds)
end
if latest_push then
  redis.call('SET', KEYS[4], string.format('%.0f', latest_push))
end
local reply = {added}
for _, other in ipairs(others) do
  append(reply, other.is_repeated and -2 - other.answer or other.answer)
end
return reply
