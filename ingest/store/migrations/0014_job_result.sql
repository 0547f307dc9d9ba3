-- compatible with: 3
-- Previews, which are jobs of workers. Releases that do not know them ignore them.
ALTER TABLE jobs
    ADD COLUMN result jsonb,
    DROP CONSTRAINT jobs_kind_check,
    ADD CONSTRAINT jobs_kind_check CHECK (kind IN (
        'backfill', 'dead_letters.replay', 'dead_letters.drop', 'dead_letters.export',
        'retries.run_now', 'retries.dead_letter', 'orders.enqueue', 'orders.remap', 'orders.preview'));

COMMENT ON COLUMN jobs.result IS 'The differing fields that a preview has found. NULL after an order in it was erased.';
