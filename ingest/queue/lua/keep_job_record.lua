#!lua flags=allow-oom
-- Writes the record of a job, also in a server that is out of memory, because the job may make room.
-- KEYS: the job's record   ARGV: its text, seconds to keep it, and `NX` unless it replaces another record
-- returns: OK, or nil if there is another record
return redis.call('SET', KEYS[1], ARGV[1], 'EX', unpack(ARGV, 2))
