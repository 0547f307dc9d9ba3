#!lua flags=allow-oom
-- needs: now, quota
-- Ends the lease of a process that stops. The other processes receive its concurrency immediately, and its last places on the line of time
-- unless another process has booked places behind them, see _quota.lua.
-- KEYS: state   ARGV: own contribution, end of its last place and time between two, how many of the last places are unused
local time = now(KEYS[1])
carry_over(time)
withdrawn(ARGV[1], math.floor(time / 1000))
local booked, interval = string.match(ARGV[2], '^(%S+) (%S+)$')
if booked and tonumber(booked) == tonumber(state.next) then
  redis.call('HSET', KEYS[1], 'next', booked - ARGV[3] * interval, 'latest', time)
end
return 1
