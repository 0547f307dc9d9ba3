#!lua flags=allow-oom
-- needs: now
-- Reports that this consumer is alive. A first heartbeat, and one after a break, begin a new series, see _standing.lua. If no consumer
-- leads the group's maintenance, this consumer leads for as long as its heartbeats continue.
-- The processes keep the queue's clock steady while the clock of this server is set, or another server with another time becomes the primary.
-- A time before the earliest that a process assumes is put forward. A process that has seen the clock jump, which the time of its call
-- shows to be no delay, puts it back, unless another process has changed it since, or has put it forward within the last minute, because
-- then it is this process that was paused.
-- The report of this consumer expires with its heartbeat. Without a report, nothing is written.
-- KEYS: alive, standing, clock, maintenance, report   ARGV: group, consumer, lifetime in ms, the earliest and latest time in ms that the process
-- assumes (or '' before its first reply), the jump in ms that it has seen (or ''), the state of the clock in that reply, the report ('{}' removes
-- an earlier one, '' if there is none)
-- returns: the time in ms, 1 if a series begins, 1 if this consumer leads, how many consumers have heartbeats, the generation of the
-- partitions at the last change that has opened or closed this queue, the state of the clock
local time, own, ahead, latest = now(KEYS[3])
local earliest, latest_known = tonumber(ARGV[4]), tonumber(ARGV[5])
local noted = redis.call('HMGET', KEYS[3], 'ahead', 'noted_at', 'advanced_at')
local state = (noted[1] or '') .. ' ' .. (noted[2] or '')
if earliest and earliest > time + 100 then
  time = earliest
  redis.call('HSET', KEYS[3], 'advanced_at', own)
elseif ARGV[6] ~= '' and ARGV[7] == state and math.abs(own - (tonumber(noted[3]) or 0)) > 60000 then
  time = math.max(time - ARGV[6], latest)
end
if own + ahead ~= time then
  redis.call('HSET', KEYS[3], 'ahead', time - own, 'noted_at', own)
end
-- A jump, or a call that was delayed, is not recorded before its process has decided which of them it is.
if not latest_known or time <= latest_known + 2000 then
  redis.call('HSET', KEYS[3], 'latest', time)
end

local until_ = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or 0)
redis.call('ZADD', KEYS[1], time + ARGV[3], ARGV[2])
local is_first = until_ <= time
if is_first then
  redis.call('ZADD', KEYS[2], time + ARGV[3], ARGV[2])
end

if ARGV[8] ~= '' then
  redis.call('SET', KEYS[5], ARGV[8], 'PX', ARGV[8] == '{}' and 1 or ARGV[3])
end

local leader = redis.call('HMGET', KEYS[4], 'leader', 'until')
local leads = leader[1] == ARGV[2] or (tonumber(leader[2]) or 0) <= time
if leads then
  redis.call('HSET', KEYS[4], 'leader', ARGV[2], 'until', time + ARGV[3])
end
local changes = redis.call('HMGET', KEYS[3], 'closed', 'opened')
local generation = math.max(tonumber(changes[1]) or 0, tonumber(changes[2]) or 0)
return {time, is_first and 1 or 0, leads and 1 or 0, redis.call('ZCARD', KEYS[1]), generation, state}
