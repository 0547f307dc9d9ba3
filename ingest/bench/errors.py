"""Errors of a bench itself."""

from ingest.lab.errors import LabFailed


class BenchFailed(LabFailed):
    """A bench could not be run to its end; the message says which part failed."""
