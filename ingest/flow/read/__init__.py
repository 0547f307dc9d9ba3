"""Reads entries, and reclaims the entries of dead consumers."""
