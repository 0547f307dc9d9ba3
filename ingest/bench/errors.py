"""What can go wrong with a bench itself."""

from ingest.domain.errors import UserError


class BenchFailed(UserError):
    """A bench could not be run to its end; the message says which part failed."""
