"""Metrics, logs and event-loop monitoring."""
