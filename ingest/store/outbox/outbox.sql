-- Rows are orders to be announced: `INSERT INTO {table} (order_id) VALUES (...)`, in the transaction that changes the order.
-- `ingest relay` moves them to the queue in the order of `id`, and deletes them.
CREATE TABLE IF NOT EXISTS {table} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Under it the row is queued once, also after a crash, a restored backup, or a table that was created again.
    announcement uuid NOT NULL DEFAULT gen_random_uuid(),
    order_id text NOT NULL,
    -- The order itself; without it a worker fetches the order.
    document jsonb,
    -- Into the lane that workers read first.
    express boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Why the row cannot be announced, or not be deleted: correct or delete it. Set to null, it is tried again.
    error text
);

CREATE INDEX IF NOT EXISTS {index} ON {table} (id) WHERE error IS NULL;

-- Tells waiting relays of new rows. Without it they find them when they next look, after INGEST_OUTBOX_POLL_INTERVAL.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{channel}', '');
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER {trigger} AFTER INSERT ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
