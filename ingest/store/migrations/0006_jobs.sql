-- compatible with: 3
CREATE TABLE jobs (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('backfill')),
    source       text COLLATE "C" NOT NULL,
    since        timestamptz NOT NULL,
    until        timestamptz NOT NULL,
    rate         double precision,
    dry_run      boolean NOT NULL DEFAULT false,
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    state        text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'done', 'failed', 'cancelled')),
    next_page    text,
    listed       bigint NOT NULL DEFAULT 0,
    missing      bigint NOT NULL DEFAULT 0,
    outdated     bigint NOT NULL DEFAULT 0,
    lease        bigint NOT NULL DEFAULT 0,
    holder       text,
    leased_until timestamptz,
    started_at   timestamptz,
    ended_at     timestamptz,
    error        text
);

CREATE UNIQUE INDEX jobs_active ON jobs (kind, source) WHERE state = 'active';
CREATE INDEX jobs_source ON jobs (kind, source, id);

COMMENT ON TABLE jobs IS 'Long operations on the orders of a source, which continue after the process that runs them has died.';
COMMENT ON COLUMN jobs.since IS 'Start of the period, inclusive.';
COMMENT ON COLUMN jobs.until IS 'End of the period, inclusive.';
COMMENT ON COLUMN jobs.rate IS 'Limit of enqueued orders per second. NULL is unlimited.';
COMMENT ON COLUMN jobs.dry_run IS 'Whether orders are only counted.';
COMMENT ON COLUMN jobs.requested_by IS 'The API key''s name, or cli: and the Unix user.';
COMMENT ON COLUMN jobs.next_page IS 'Cursor of the next page of the shop''s list. NULL is the first page.';
COMMENT ON COLUMN jobs.missing IS 'Orders without a row. They were enqueued, except in a dry run.';
COMMENT ON COLUMN jobs.outdated IS 'Orders with an older row. They were enqueued, except in a dry run.';
COMMENT ON COLUMN jobs.lease IS 'Incremented by each process that takes the job, so that an earlier process can no longer write.';
COMMENT ON COLUMN jobs.holder IS 'The process that runs the job.';
COMMENT ON COLUMN jobs.leased_until IS 'Another process may take the job after this time.';
COMMENT ON COLUMN jobs.error IS 'The last problem, without any secret.';
