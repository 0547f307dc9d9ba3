-- compatible with: 3
ALTER TABLE polls ADD COLUMN shown_until timestamptz, ADD COLUMN newest timestamptz, ADD COLUMN behind double precision NOT NULL DEFAULT 0,
    ADD COLUMN listed integer NOT NULL DEFAULT 0;

COMMENT ON COLUMN polls.shown_until IS 'Time of the second newest order that the list has shown. Readings begin there, less the overlap.';
COMMENT ON COLUMN polls.newest IS 'Time of the newest order that the list has shown.';
COMMENT ON COLUMN polls.behind IS 'Seconds by which the times in the list are behind the clock of the shop. 0 if they are not.';
COMMENT ON COLUMN polls.listed IS 'Orders of the last successful reading.';
