"""Connections to Redis, scripts, and what the server supports."""
