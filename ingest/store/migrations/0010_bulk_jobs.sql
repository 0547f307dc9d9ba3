-- compatible with: 3
-- Jobs of further kinds, with a selection instead of a period. Releases that only know backfills ignore them.
ALTER TABLE jobs
    ALTER COLUMN since DROP NOT NULL,
    ALTER COLUMN until DROP NOT NULL,
    ADD COLUMN selection  jsonb,
    ADD COLUMN total      bigint,
    ADD COLUMN done       bigint NOT NULL DEFAULT 0,
    ADD COLUMN gone       bigint NOT NULL DEFAULT 0,
    ADD COLUMN examined   bigint NOT NULL DEFAULT 0,
    ADD COLUMN position   jsonb,
    ADD COLUMN per_second double precision NOT NULL DEFAULT 0,
    DROP CONSTRAINT jobs_kind_check,
    ADD CONSTRAINT jobs_kind_check CHECK (kind IN (
        'backfill', 'dead_letters.replay', 'dead_letters.drop', 'dead_letters.export',
        'retries.run_now', 'retries.dead_letter', 'orders.enqueue', 'orders.remap')),
    ADD CONSTRAINT jobs_selection_check CHECK (
        CASE kind WHEN 'backfill' THEN since IS NOT NULL AND until IS NOT NULL ELSE selection IS NOT NULL END);

-- A source has at most one unfinished backfill, but any number of other jobs.
DROP INDEX jobs_active;
CREATE UNIQUE INDEX jobs_active ON jobs (kind, source) WHERE state = 'active' AND kind = 'backfill';
CREATE INDEX jobs_unfinished ON jobs (source, id) WHERE state = 'active' AND kind <> 'backfill';
CREATE INDEX jobs_newest ON jobs (source, id);

COMMENT ON COLUMN jobs.since IS 'Start of the period of a backfill, inclusive.';
COMMENT ON COLUMN jobs.until IS 'End of the period of a backfill, inclusive.';
COMMENT ON COLUMN jobs.selection IS 'The selected entries or orders. NULL in a backfill.';
COMMENT ON COLUMN jobs.total IS 'How many entries or orders matched when the job was requested. NULL is unknown.';
COMMENT ON COLUMN jobs.done IS 'Entries or orders that were changed. A backfill counts in missing and outdated.';
COMMENT ON COLUMN jobs.gone IS 'Entries that had already been changed otherwise.';
COMMENT ON COLUMN jobs.examined IS 'Entries or orders that were read, including those that do not match.';
COMMENT ON COLUMN jobs.position IS 'Where the job continues. NULL is the beginning.';
COMMENT ON COLUMN jobs.per_second IS 'Changes per second while the current holder runs the job.';
