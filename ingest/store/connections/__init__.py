"""Connections to PostgreSQL, which reconnect and translate errors."""
