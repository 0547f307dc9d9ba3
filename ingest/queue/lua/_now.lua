-- Redis' own clock, in ms since 1970: all times that workers compare are its.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
