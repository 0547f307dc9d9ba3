"""Reads a document from a file or from standard input."""

import sys
from pathlib import Path

from ingest.domain.errors import ConfigError, UserError


def read_document(path: Path, limit: int, name: str, setting: str) -> bytes:
    """The content of a file, or of standard input for `-`.

    Args:
        path: of the file.
        limit: its size in bytes at most.
        name: of the content, for messages.
        setting: that sets the limit.

    Raises:
        ConfigError: if the file cannot be read.
        UserError: if it is too large.
    """
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(limit + 1)
        else:
            with path.open("rb") as file:
                content = file.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > limit:
        raise UserError(f"the {name} is larger than {limit} bytes ({setting})")
    return content
