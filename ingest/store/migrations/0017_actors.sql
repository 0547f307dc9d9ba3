-- compatible with: 3
-- A role that may not read the audit log, as the role of workers, acts under the name of a user of commands (`cli:`), or runs a job for the
-- one who has requested it. Names of tables are qualified, so that no search path of a session leads to other tables.
CREATE FUNCTION require_own_actor() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_own boolean := has_table_privilege(format('%I.audit_log', TG_TABLE_SCHEMA), 'SELECT');
BEGIN
    IF NOT is_own AND TG_TABLE_NAME = 'audit_log' AND jsonb_typeof(NEW.selection -> 'job') = 'number' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I.jobs WHERE id = $1::numeric::bigint AND source = $2 AND kind = $3'
            ' AND requested_by = $4 AND selection = $5)', TG_TABLE_SCHEMA)
            INTO is_own USING NEW.selection ->> 'job', NEW.source, NEW.action, NEW.actor, NEW.selection - 'job';
    END IF;
    IF NOT is_own THEN
        -- Raises PostgreSQL's own error for a missing right, which names the table.
        EXECUTE format('SELECT FROM %I.audit_log LIMIT 0', TG_TABLE_SCHEMA);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER own_actor BEFORE INSERT ON audit_log FOR EACH ROW
    WHEN (NOT starts_with(NEW.actor, 'cli:')) EXECUTE FUNCTION require_own_actor();
CREATE TRIGGER own_actor BEFORE INSERT ON jobs FOR EACH ROW
    WHEN (NOT starts_with(NEW.requested_by, 'cli:')) EXECUTE FUNCTION require_own_actor();

COMMENT ON COLUMN audit_log.actor IS 'Name of the API key, proxy: and a user of the console, or cli: and the Unix user. Only roles that may read this table can name others than users of commands.';
