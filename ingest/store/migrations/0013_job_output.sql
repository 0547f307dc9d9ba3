-- compatible with: 3
-- Releases that do not know exports as jobs ignore the table.
CREATE TABLE job_output (
    job      bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,
    part     integer NOT NULL,
    progress jsonb NOT NULL,
    content  bytea NOT NULL,
    PRIMARY KEY (job, part)
);

COMMENT ON TABLE job_output IS 'The files that exports have written, for 7 days after their end.';
COMMENT ON COLUMN job_output.part IS 'Number of the part, from 0.';
COMMENT ON COLUMN job_output.progress IS 'The progress of the job with this part, from which the job continues.';
COMMENT ON COLUMN job_output.content IS 'The text of the part, compressed with gzip.';
