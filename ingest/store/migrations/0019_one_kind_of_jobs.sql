-- compatible with: 3
-- A backfill is a job with a selection and a position, like all others. Earlier releases read and write separate columns for it, which
-- a trigger keeps equal as long as they exist.
ALTER TABLE jobs ADD COLUMN operation uuid NOT NULL DEFAULT gen_random_uuid();

CREATE FUNCTION keep_backfill_columns() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
BEGIN
    IF NEW.selection IS NULL OR TG_OP = 'UPDATE' AND (NEW.next_page, NEW.listed, NEW.missing, NEW.outdated)
        IS DISTINCT FROM (OLD.next_page, OLD.listed, OLD.missing, OLD.outdated) THEN
        NEW.selection := coalesce(NEW.selection,
            jsonb_build_object('since', NEW.since, 'until', NEW.until, 'dry_run', NEW.dry_run));
        NEW.position := jsonb_build_object(
            'next_page', NEW.next_page, 'missing', NEW.missing, 'outdated', NEW.outdated);
        NEW.examined := NEW.listed;
        NEW.done := CASE WHEN NEW.dry_run THEN 0 ELSE NEW.missing + NEW.outdated END;
    ELSE
        NEW.since := (NEW.selection ->> 'since')::timestamptz;
        NEW.until := (NEW.selection ->> 'until')::timestamptz;
        NEW.dry_run := (NEW.selection ->> 'dry_run')::boolean;
        NEW.next_page := NEW.position ->> 'next_page';
        NEW.listed := NEW.examined;
        NEW.missing := coalesce((NEW.position ->> 'missing')::bigint, 0);
        NEW.outdated := coalesce((NEW.position ->> 'outdated')::bigint, 0);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER backfill_columns BEFORE INSERT OR UPDATE ON jobs FOR EACH ROW
    WHEN (NEW.kind = 'backfill') EXECUTE FUNCTION keep_backfill_columns();
-- The trigger fills the new form.
UPDATE jobs SET selection = NULL WHERE kind = 'backfill';

CREATE INDEX jobs_active_of_source ON jobs (source, kind, id) WHERE state = 'active';
DROP INDEX jobs_unfinished;

-- As before, and for the one entry of a job, whose selection contains its rate.
CREATE OR REPLACE FUNCTION require_own_actor() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_own boolean := has_table_privilege(format('%I.audit_log', TG_TABLE_SCHEMA), 'SELECT');
BEGIN
    IF NOT is_own AND TG_TABLE_NAME = 'audit_log' AND jsonb_typeof(NEW.selection -> 'job') = 'number' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I.jobs WHERE id = $1::numeric::bigint AND source = $2'
            ' AND $3 = CASE kind WHEN ''backfill'' THEN ''backfills.start'' ELSE kind END'
            ' AND requested_by = $4 AND selection = $5)', TG_TABLE_SCHEMA)
            INTO is_own USING NEW.selection ->> 'job', NEW.source, NEW.action, NEW.actor, NEW.selection - 'job' - 'rate';
    END IF;
    IF NOT is_own THEN
        -- Raises PostgreSQL's own error for a missing right, which names the table.
        EXECUTE format('SELECT FROM %I.audit_log LIMIT 0', TG_TABLE_SCHEMA);
    END IF;
    RETURN NEW;
END $$;

COMMENT ON COLUMN jobs.selection IS 'The selected entries or orders, or the period of a backfill.';
COMMENT ON COLUMN jobs.examined IS 'Entries or orders that were read, including those that do not match.';
COMMENT ON COLUMN jobs.done IS 'Entries or orders that were changed.';
COMMENT ON COLUMN jobs.operation IS 'The operation of the job''s entry in the table audit_log.';
COMMENT ON COLUMN jobs.expired_leases IS 'Processes that have died or stalled while they ran the job, since it was requested, resumed, or has advanced.';
COMMENT ON COLUMN jobs.since IS 'As in the selection of a backfill, for earlier releases, as are until and dry_run.';
COMMENT ON COLUMN jobs.listed IS 'As examined of a backfill, for earlier releases.';
COMMENT ON COLUMN jobs.next_page IS 'As in the position of a backfill, for earlier releases, as are missing and outdated.';
