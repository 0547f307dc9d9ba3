-- compatible with: 3
-- Rows have no key: nothing refers to them, and each further index would cost every order.
CREATE TABLE order_history (
    source       text COLLATE "C" NOT NULL,
    order_id     text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    event        text NOT NULL,
    attempt      integer,
    took         real,
    enqueued_at  timestamptz,
    replayed_at  timestamptz,
    version      timestamptz,
    next_at      timestamptz,
    origin       text,
    reason       text,
    error        text,
    worker       text,
    announced_as text
);

CREATE INDEX order_history_order ON order_history (source, order_id, at);
CREATE INDEX order_history_at ON order_history (at);

COMMENT ON TABLE order_history IS 'What happened to orders, if INGEST_HISTORY is set, and for that long.';
COMMENT ON COLUMN order_history.at IS 'When it happened, by the database''s clock.';
COMMENT ON COLUMN order_history.event IS 'The result of an attempt, or the operation of an operator.';
COMMENT ON COLUMN order_history.took IS 'Seconds of the request to the external API. NULL if there was none.';
COMMENT ON COLUMN order_history.enqueued_at IS 'When the order of this attempt was enqueued.';
COMMENT ON COLUMN order_history.replayed_at IS 'When a dead letter of this entry was last replayed.';
COMMENT ON COLUMN order_history.version IS 'The version that was stored.';
COMMENT ON COLUMN order_history.next_at IS 'When the next attempt is due.';
COMMENT ON COLUMN order_history.origin IS 'The program that enqueued the order, or the operator.';
COMMENT ON COLUMN order_history.announced_as IS 'The ID that was enqueued, if a transform has changed it.';
