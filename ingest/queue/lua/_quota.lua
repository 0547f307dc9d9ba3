-- The state of one quota, in one hash of fixed size, whatever the number of processes.
--
-- Each process contributes to sums: itself, the requests that it may have in flight (held), what it wants of them if that is no more
-- than its fair share (small), whether it wants more (large), and whether it was given less than its fair share (short). The
-- sums are kept by the second in which a process asked last, for the last four seconds, so that what a dead process contributed is gone
-- within four seconds, without anybody looking for it. A process knows its own contribution, and sends it with each call; the call
-- moves it to the present second. One that does not know whether its last call was carried out sends none: what it may
-- have contributed then counts twice until it expires, which grants less, never more.
local names = {'epoch', 'members', 'held', 'small', 'large', 'short'}
local fields = {'created', 'learning', 'expected', 'next', 'paused', 'slowest', 'slow', 'seconds0', 'seconds1', 'seconds2', 'seconds3'}
local state = {}
for i, value in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
  state[fields[i]] = value or nil
end

local function parsed(text)
  local sums, i = {}, 0
  for number in string.gmatch(text or '', '%d+') do
    i = i + 1
    sums[names[i] or 'extra'] = tonumber(number)
  end
  return i == #names and sums or nil
end

local function written(sums)
  local texts = {}
  for i, name in ipairs(names) do
    texts[i] = string.format('%.0f', sums[name])
  end
  return table.concat(texts, ' ')
end

local function slot(epoch)
  return 'seconds' .. epoch % 4
end

-- The sums of a second; zeros without calls in it.
local function second(epoch)
  local sums = parsed(state[slot(epoch)])
  return sums and sums.epoch == epoch and sums or {epoch = epoch, members = 0, held = 0, small = 0, large = 0, short = 0}
end

-- Takes a contribution, "created:sums", out of the sums; returns what it was, if it still counts.
local function withdrawn(text, epoch)
  local created, numbers = string.match(text, '^(%d+):(.*)$')
  local own = created and created == state.created and parsed(numbers)
  if not own or own.epoch <= epoch - 4 or own.epoch > epoch then
    return nil
  end
  local sums = second(own.epoch)
  for i = 2, #names do
    sums[names[i]] = math.max(0, sums[names[i]] - own[names[i]])
  end
  state[slot(own.epoch)] = written(sums)
  redis.call('HSET', KEYS[1], slot(own.epoch), state[slot(own.epoch)])
  return own
end

-- What all others contribute.
local function totals(epoch)
  local sum = {members = 0, held = 0, small = 0, large = 0, short = 0}
  for at = epoch - 3, epoch do
    local sums = second(at)
    for name, value in pairs(sum) do
      sum[name] = value + sums[name]
    end
  end
  return sum
end
