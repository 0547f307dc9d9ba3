"""Errors of benches."""

from ingest.lab.errors import LabFailed


class BenchFailed(LabFailed):
    """A bench could not finish. The message names the failed part."""
