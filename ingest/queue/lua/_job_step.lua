-- Runs one step of a job, which is the function `part`, and records it in the same step: how many entries were changed, and where the job
-- continues. A step that is sent again after a lost reply is not run again.
-- KEYS: the job's record (`DONE GONE AFTER`), the keys of the part
-- ARGV: after which entry the job continues, how many entries the step is about, seconds to keep the record, the arguments of the part
-- returns: how many entries of the job were changed so far, and how many were gone
local record, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local done, gone, last = (redis.call('GET', record) or '0 0 '):match('^(%d+) (%d+) (.*)$')
if last ~= after then
  local changed = part({unpack(KEYS, 2)}, {unpack(ARGV, 4)})
  done = string.format('%d', done + changed)
  gone = string.format('%d', gone + math.max(0, count - changed))
  redis.call('SET', record, done .. ' ' .. gone .. ' ' .. after, 'EX', ARGV[3])
end
return {done, gone}
