"""The name of a source: one shop, marketplace or carrier account, with its own queue."""

import re
from collections.abc import Collection, Iterable

from ingest.domain.errors import ConfigError

UNNAMED = ""
"""The only source of a deployment without a sources file."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)


# An error lists no more names than fit into a few lines.
_LISTED = 20


class UnknownSource(ConfigError):
    """No source with this name is configured."""


class SeveralSources(ConfigError):
    """One source is needed, and several are configured."""


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


def deployment_of(queue: str, source: str) -> str:
    """Return the name of the unnamed source's queue from a source's queue. Keys of the whole deployment contain it."""
    return queue.removesuffix(f"/{source}") if source else queue


def names_in_outbox(sources: Collection[str]) -> list[str]:
    """Return the names of sources that a row of an outbox may have. A row without a name belongs to the only source."""
    return [*dict.fromkeys((*sources, UNNAMED))] if len(sources) == 1 else [*sources]


def chosen_source(name: str | None, configured: Collection[str]) -> str:
    """Return the source that the user has named, or the only one.

    Args:
        name: as the user gave it. None for the only source.
        configured: the names of all sources.

    Raises:
        UnknownSource: no source has this name.
        SeveralSources: there is no name, and several sources.
    """
    if name is not None:
        return _known(name, configured)
    if len(configured) > 1:
        raise SeveralSources(f"there are several sources: choose one with --source, from {_listed(configured)}")
    return next(iter(configured))


def chosen_sources(names: Iterable[str] | None, configured: Collection[str]) -> list[str]:
    """Return the sources that the user has named, each once, or all sources without a name.

    Raises:
        UnknownSource: no source has one of the names.
    """
    chosen = [_known(name, configured) for name in dict.fromkeys(names or ())]
    return chosen or [*configured]


def _known(name: str, configured: Collection[str]) -> str:
    if name in configured:
        return name
    if UNNAMED in configured:
        raise UnknownSource(f"there is no source {name[:64]!r}, because no sources file is set: set INGEST_SOURCES")
    raise UnknownSource(f"there is no source {name[:64]!r}: the sources are {_listed(configured)}")


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:_LISTED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
