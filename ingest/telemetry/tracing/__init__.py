"""Traces of orders: the port to a tracing library, its implementation on OpenTelemetry, and the spans of enqueueing."""
