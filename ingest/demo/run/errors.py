"""What can go wrong with the demo itself."""

from ingest.domain.errors import UserError


class DemoFailed(UserError):
    """The demo could not be played to its end; the message says which part failed, and where its log is."""
