-- compatible with: 3
CREATE TABLE credentials (
    source     text COLLATE "C" PRIMARY KEY,
    content    bytea,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE credentials IS 'Access and refresh tokens that the processes of a source share.';
COMMENT ON COLUMN credentials.source IS 'The name of the source. Empty for the unnamed source.';
COMMENT ON COLUMN credentials.content IS 'The tokens, encrypted with the key of INGEST_UPSTREAM_OAUTH2_STORE_KEY. NULL before the first use.';
