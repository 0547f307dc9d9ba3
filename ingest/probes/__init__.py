"""The HTTP server of a process for metrics and health checks."""
