"""Connections to Redis, scripts, and the server's capabilities."""
