-- compatible with: 3
CREATE TABLE polls (
    source         text COLLATE "C" PRIMARY KEY,
    position       timestamptz NOT NULL,
    holder         text NOT NULL,
    fence          bigint NOT NULL,
    leased_until   timestamptz,
    next_at        timestamptz NOT NULL,
    looked_at      timestamptz,
    looked_back_at timestamptz,
    failures       integer NOT NULL DEFAULT 0,
    error          text
);

COMMENT ON TABLE polls IS 'How far the list of orders of each polled source has been read.';
COMMENT ON COLUMN polls.position IS 'All orders that changed before this time, by the clock of the shop, have been enqueued.';
COMMENT ON COLUMN polls.holder IS 'The process that had the last turn.';
COMMENT ON COLUMN polls.fence IS 'Number of the turn. A process whose turn has ended cannot change the row.';
COMMENT ON COLUMN polls.leased_until IS 'Other processes may read the list after this time. NULL if no process reads it.';
COMMENT ON COLUMN polls.next_at IS 'Time of the next reading.';
COMMENT ON COLUMN polls.looked_at IS 'End of the last successful reading.';
COMMENT ON COLUMN polls.looked_back_at IS 'End of the last successful reading that began further back.';
COMMENT ON COLUMN polls.failures IS 'Readings that have failed since the last success.';
COMMENT ON COLUMN polls.error IS 'Error of the last reading, if it has failed.';
