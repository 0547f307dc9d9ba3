"""Connections to Redis, and scripts."""
