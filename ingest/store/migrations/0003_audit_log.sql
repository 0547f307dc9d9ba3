CREATE TABLE audit_log (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    operation uuid NOT NULL,
    phase     text NOT NULL CHECK (phase IN ('begun', 'done', 'failed')),
    actor     text NOT NULL,
    action    text NOT NULL,
    selection jsonb NOT NULL,
    count     bigint
);

COMMENT ON TABLE audit_log IS 'Who has changed what by hand. Roles that write it may add rows, and change none.';
COMMENT ON COLUMN audit_log.operation IS 'The same in both rows of one operation.';
COMMENT ON COLUMN audit_log.phase IS 'begun: written before the change; done or failed: after it. Without a second row, the change may have been made.';
COMMENT ON COLUMN audit_log.actor IS 'The API key''s name, or cli: and the Unix user.';
COMMENT ON COLUMN audit_log.selection IS 'What the operation was asked to change.';
COMMENT ON COLUMN audit_log.count IS 'How many entries or orders were changed, as far as is known.';
