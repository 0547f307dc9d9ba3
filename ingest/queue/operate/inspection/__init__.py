"""Inspects the servers of a queue for `ingest doctor`. Changes nothing."""
