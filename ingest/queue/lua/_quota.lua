-- The state of one quota, in one hash of fixed size, whatever the number of processes.
--
-- Each process contributes to sums: itself, the requests that it may have in flight (held), the requests that it wants if they are no
-- more than its fair share (small), whether it wants more (large), and whether it was granted less than its fair share (short). The
-- sums are kept by the second of each process's last call, for the last four seconds, so that the contribution of a dead process
-- expires. A process sends its own contribution with each call, which moves it to the present second. If a process does not know whether
-- its last call was carried out, it sends none. That contribution then counts twice until it expires, which grants less, never more.
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

-- The sums of a second, or zeros without calls in it.
local function second(epoch)
  local sums = parsed(state[slot(epoch)])
  return sums and sums.epoch == epoch and sums or {epoch = epoch, members = 0, held = 0, small = 0, large = 0, short = 0}
end

-- Takes a contribution, "created:sums", out of the sums. Returns it if it still counts.
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

-- The contributions of all others.
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
