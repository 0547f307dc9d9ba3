"""The name of a source: one shop, marketplace or carrier account, with its own queue."""

import re

from ingest.domain.errors import ConfigError

UNNAMED = ""
"""The only source of a deployment without a sources file."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)


class InvalidSourceName(ConfigError):
    """The text cannot be the name of a source."""


def parse_source_name(text: str) -> str:
    """Return the name of a source.

    Raises:
        InvalidSourceName: it is not one.
    """
    if not _NAME.fullmatch(text):
        raise InvalidSourceName(
            f"{text[:64]!r} is not the name of a source: use 1 to 32 of a-z, 0-9 and -, and begin with a letter or digit"
        )
    return text


def queue_of(stream: str, source: str) -> str:
    """Return the name of a source's queue: `orders` for the unnamed source, `orders/shop-de` for a named one."""
    return f"{stream}/{source}" if source else stream
