"""The values of operations: jobs, backfills, polling, controls, and the audit log."""
