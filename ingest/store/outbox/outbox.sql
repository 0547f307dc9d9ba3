-- Orders to enqueue. Run `INSERT INTO {table} (order_id) VALUES (...)` in the transaction that changes the order.
-- `ingest relay` moves the rows to the queue in the order of `id`, and deletes them.
CREATE TABLE IF NOT EXISTS {table} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Ensures that the row is queued once, even after a crash, a restored backup, or a table that was created again.
    announcement uuid NOT NULL DEFAULT gen_random_uuid(),
    order_id text NOT NULL,
    -- The order's source. Empty for the only source of a service without a file of sources.
    source text NOT NULL DEFAULT '',
    -- The order itself. If null, a worker fetches the order.
    document jsonb,
    -- Whether to use the lane that workers read first.
    express boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Why the row cannot be queued or deleted. Correct or delete the row. Set to null, it is tried again.
    error text
);

-- For a table of an earlier release.
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS source text NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS {index} ON {table} (id) WHERE error IS NULL;

-- Notifies waiting relays of new rows. Without it, they find new rows after INGEST_OUTBOX_POLL_INTERVAL.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{channel}', '');
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER {trigger} AFTER INSERT ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
