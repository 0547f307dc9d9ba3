-- needs: lists
-- The largest ID that an entry can have. A stream with this ID accepts no further entries, even when the entry is deleted.
local largest_id = '18446744073709551615-18446744073709551615'

-- The entries of a page after an entry ('-': from the beginning). Redis rejects the largest ID as an exclusive start.
local function page_after(stream, id, to, count)
  if id == largest_id then
    return {}
  end
  return redis.call('XRANGE', stream, id == '-' and '-' or '(' .. id, to, 'COUNT', count)
end

-- The last ID of a stream, and by how many ms it is ahead of Redis' clock, if it is. The entry with this ID may be gone.
local function last_id(stream)
  if redis.call('EXISTS', stream) == 0 then
    return '0-0', 0
  end
  local id, time = by_name(redis.call('XINFO', 'STREAM', stream))['last-generated-id'], redis.call('TIME')
  return id, math.max(0, tonumber(id:match('^%d+')) - time[1] * 1000 - math.floor(time[2] / 1000))
end
