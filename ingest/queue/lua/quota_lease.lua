#!lua flags=allow-oom
-- needs: lists, now, quota
-- Leases a share of the quota to one process: times at which it may begin requests, and how many it may have in flight. See _quota.lua.
--
-- Rate: a call books the wanted number of next places, but no more than a fair part of a period. A process that wants more calls again
-- when they are used. So processes take turns, max-min fair by demand. Places are not booked far ahead, so that a process that dies
-- loses few. No place comes before the reply should have arrived.
--
-- Concurrency: a process that wants no more than the fair level is granted it. The others share the rest equally (one step of
-- water-filling with each call). The sum of the held requests never exceeds the quota. A process that holds more than the level is
-- granted less at its next call, and other processes are granted the difference when it has confirmed that.
--
-- With an empty state (the first start, or a lost state), and after a process could not reach the server, nothing is granted for
-- two seconds, and for three more while fewer processes have called than before. Until their contributions are known, each process
-- keeps to its own safe share.
-- KEYS: state
-- ARGV: own contribution, rate, burst, concurrency, tokens wanted, concurrency wanted, claim, ms in which the reply should arrive, 1 if
--       back after a failure, requests/s that the API has announced (0: none), for how many ms, members last known (0: none),
--       1 if the last lease is unused, 1 if the burst is available in the beginning
-- returns: own contribution, the end of its last place and the time between two, for quota_end, members, tokens, us until the first, us
--       between two, limit, period in ms, ms until the next call at the earliest, 1 if learning, ms of the pause, the time in us
local learning_ms, missing_ms, epoch_ms = 2000, 3000, 1000
local rate, burst, concurrency = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local wanted, want, claim, transit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local time, own_time, ahead = now(KEYS[1])
-- By which the process compares its clock with this one.
local exact = time + redis.call('TIME')[2] % 1000 / 1000
local changes = {'latest', time}
local function note(name, value)
  state[name] = value
  append(changes, name, value)
end
if own_time + ahead < time then
  note('ahead', time - own_time)
  note('noted_at', own_time)
end
local epoch = math.floor(time / epoch_ms)
local learning = tonumber(state.learning) or 0
if not state.created then
  note('created', string.format('%.0f', time))
end
local expected = tonumber(state.expected) or 0
if learning == 0 or ARGV[9] == '1' then
  expected = math.max(time < learning + missing_ms and expected or 0, tonumber(ARGV[12]))
  learning = time + learning_ms
  note('learning', learning)
  note('expected', expected)
end
carry_over(time)
local own = withdrawn(ARGV[1], epoch)
local others = totals(epoch)
local members = others.members + 1
local is_learning = time < learning or (members < expected and time < learning + missing_ms)
if not is_learning and expected > 0 then
  note('expected', 0)
end

-- The rate that the API has announced in its headers.
if tonumber(ARGV[10]) > 0 then
  note('slowest', ARGV[10])
  note('slow', time + tonumber(ARGV[11]))
end
if rate > 0 and time < (tonumber(state.slow) or 0) then
  rate = math.min(rate, tonumber(state.slowest) or rate)
end
local paused = math.max(0, (tonumber(state.paused) or 0) - time)

-- The concurrency.
local limit, large, short = want, 0, 0
if concurrency > 0 then
  local free = math.max(0, concurrency - others.held)
  local level = math.max(concurrency / members, (concurrency - others.small) / (others.large + 1))
  if want > level then
    large = 1
    if level >= 1 then
      limit = others.short > 0 and math.floor(level) or math.ceil(level)
    else
      -- There are more processes than places. A process that has used its turn leaves the place to the others before its next turn. It
      -- keeps the place until its time to send has come, because otherwise no process would ever have both.
      limit = own and own.held > 0 and ARGV[13] ~= '1' and 0 or 1
    end
  end
  limit = math.min(limit, free)
  if limit < math.min(want, math.max(1, math.floor(level))) then
    short = 1
  end
end

-- The rate.
local tokens, starts, interval, asks = 0, 0, 0, 10
-- A process far from the server calls less often, and books more each time.
local period = math.min(1000, math.max(100, members * 1000 / 128, 2 * transit))
-- Times to send are useless to a process without concurrency. It calls again soon, because another may have used its turn by then.
local has_none = concurrency > 0 and limit == 0
if rate > 0 then
  interval = 1000 / rate
  period = has_none and period or math.min(1000, math.max(period, members * interval))
  local arrives = time + transit
  local next_ = math.max(tonumber(state.next) or 0, arrives - math.max(0, burst - 1) * interval, paused > 0 and time + paused or 0,
    is_learning and ARGV[14] ~= '1' and math.max(time, learning) or 0)
  if wanted > 0 and paused == 0 and not is_learning and not has_none then
    if next_ - arrives > 2 * period + interval then
      asks = math.min(1000, next_ - time - period)
    else
      local fair = math.max(1, math.floor(period / interval / members))
      local ready = next_ <= arrives and math.floor((arrives - next_) / interval) + 1 or 0
      tokens = math.min(wanted, math.max(fair, math.floor(ready / members)))
      starts = next_ - exact
      next_ = next_ + tokens * interval
      asks = period / 10
    end
  end
  note('next', next_)
end
if is_learning then
  asks = time < learning and math.min(250, learning - time + 1) or 100
elseif paused > 0 then
  asks = math.min(1000, paused + 1)
end

local held = math.max(is_learning and 0 or limit, claim)
local mine = {epoch = epoch, members = 1, held = held, small = large == 0 and want or 0, large = large, short = short}
local sums = second(epoch)
for i = 2, #names do
  sums[names[i]] = sums[names[i]] + mine[names[i]]
end
note(slot(epoch), written(sums))
redis.call('HSET', KEYS[1], unpack(changes))
return {
  state.created .. ':' .. written(mine), string.format('%.17g %.17g', state.next or 0, interval), members, tokens,
  math.floor(starts * 1000), math.ceil(interval * 1000), limit, math.ceil(period), math.ceil(asks), is_learning and 1 or 0,
  math.ceil(paused), math.floor(exact * 1000)
}
