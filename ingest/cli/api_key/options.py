"""The options that the commands share, and the text of a limit."""

from pathlib import Path
from typing import Annotated

import typer

from ingest.domain.api_key import ApiKey, Scope

File = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The file of the keys, instead of INGEST_API_KEYS_FILE.")
]


def keys_file(given: Path | None) -> Path:
    """The file of the keys.

    Raises:
        ConfigError: none is named.
    """
    from ingest.cli.common import start
    from ingest.domain.errors import ConfigError

    path = start(api_keys_file=None if given is None else str(given)).api_keys_file
    if path is None:
        raise ConfigError("there is no file of keys: set INGEST_API_KEYS_FILE, or give --file")
    return Path(path)


def scopes_of(key: ApiKey) -> str:
    """The scopes of a key."""
    return " ".join(scope.value for scope in Scope if scope in key.scopes)


def limit_of(key: ApiKey) -> str:
    """How often a key may be used."""
    return f"{key.limit.rate:g}/s, burst {key.limit.burst:,}" if key.limit else "no limit"
