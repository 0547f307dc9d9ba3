-- compatible with: 3
-- statement by statement
-- Finds the rows of one operation, for the list of operations. An interrupted statement leaves an invalid index behind.
DROP INDEX CONCURRENTLY IF EXISTS audit_log_operation;
CREATE INDEX CONCURRENTLY audit_log_operation ON audit_log (operation);
