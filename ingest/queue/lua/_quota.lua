-- The state of one quota, in one hash of fixed size, and the protocol between its server, which is these scripts, and the processes, which
-- hold leases of it. In everything that follows, the server counts at least as much as a process may use.
--
-- Concurrency. A process sends with each call its claim, which is the most that it may have in flight until the reply. It keeps to the
-- claim from the moment at which it sends it. By claiming less than its lease, it gives up the rest. The server counts the larger one of
-- the claim and the new lease. A lease that has shrunk therefore counts at its old size until the next call, with which the process
-- confirms the new size by a smaller claim. After the reply, the process keeps to the new lease, and begins no request while it has more
-- in flight. If the request or the reply is lost, the process keeps to its claim, which the server counts in either case. A process without
-- requests makes a last call with a claim of 0.
--
-- Rate. The requests of all processes have places on one line of time, 1/rate apart (the generic cell rate algorithm). A place belongs to
-- one process, which uses it at its time or 10 ms later at most. A lost reply loses its places. A process that stops returns its last
-- places only while no other process has booked any behind them.
--
-- Time. A lease is valid for three seconds from when its process has sent the call. The server counts it for at least three seconds, and
-- less than four, after it has carried out the call. After three failed calls in a row, a process continues with its safe share, and its
-- return makes the server learn, see quota_lease.lua. Between two calls of any processes, a contribution ages by 1.5 seconds at most,
-- so that a clock that steps forward does not end all of them. A time without calls looks the same.
--
-- Upgrade. Processes of the last release, 0.1.0rc1, share this state, and each release counts the contributions and places of the other.
-- While they run, the quota may be exceeded as before, because their own leases shrink without confirmation, they return places of
-- others when they stop, and they do not notice a step of the clock.
--
-- Each process contributes to sums: itself, the requests that it may have in flight (held), the requests that it wants if they are no
-- more than its fair share (small), whether it wants more (large), and whether it was granted less than its fair share (short). The
-- sums are kept by the second of each process's last call, for the last four seconds, so that the contribution of a dead process
-- expires. A process sends its own contribution with each call, which moves it to the present second. If a process does not know whether
-- its last call was carried out, it sends none. That contribution then counts twice until it expires, which grants less, never more.
local names = {'epoch', 'members', 'held', 'small', 'large', 'short'}
local fields = {'created', 'learning', 'expected', 'next', 'paused', 'slowest', 'slow', 'seconds0', 'seconds1', 'seconds2', 'seconds3',
  'latest', 'moved_from', 'moved_by'}
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

-- After a time without calls or a step of the clock, moves all contributions that counted at the last call closer to the present second. Notes up to
-- which second, and by how many seconds, because processes send contributions as they received them.
local function carry_over(time)
  local last = math.floor((tonumber(state.latest) or time) / 1000)
  local by = math.floor((time - (tonumber(state.latest) or time) - 500) / 1000)
  if by < 1 then
    return
  end
  local changes = {'moved_from', last, 'moved_by', by}
  local counted = {}
  for at = last - 3, last do
    counted[at + by] = second(at)
  end
  for at, sums in pairs(counted) do
    sums.epoch = at
    state[slot(at)] = written(sums)
    changes[#changes + 1], changes[#changes + 2] = slot(at), state[slot(at)]
  end
  state.moved_from, state.moved_by = last, by
  redis.call('HSET', KEYS[1], unpack(changes))
end

-- Takes a contribution, "created:sums", out of the sums. Returns it if it still counts.
local function withdrawn(text, epoch)
  local created, numbers = string.match(text, '^(%d+):(.*)$')
  local own = created and created == state.created and parsed(numbers)
  if own and own.epoch <= (tonumber(state.moved_from) or 0) then
    own.epoch = own.epoch + state.moved_by
  end
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
