"""Reads entries, and reclaims those of dead consumers."""
