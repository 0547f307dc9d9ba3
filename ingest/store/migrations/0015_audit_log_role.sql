-- compatible with: 3
-- The default follows in a second step, so that it does not fill the rows that exist.
ALTER TABLE audit_log ADD COLUMN role text;
ALTER TABLE audit_log ALTER COLUMN role SET DEFAULT session_user;

COMMENT ON COLUMN audit_log.role IS 'The role of PostgreSQL that has added the row, which it cannot choose. NULL in rows of earlier releases.';
