-- compatible with: 3
ALTER TABLE jobs ADD COLUMN expired_leases integer NOT NULL DEFAULT 0;

COMMENT ON COLUMN jobs.expired_leases IS 'Processes that have died or stalled while they ran the job, since it was requested or resumed.';
