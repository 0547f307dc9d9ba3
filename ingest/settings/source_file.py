"""Reads the sources file, `INGEST_SOURCES`, and gives each source its own `Settings`.

The settings of a source are those of the process, with its own values for the external API, the processing and the queue.
"""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.domain.errors import ConfigError
from ingest.domain.source_name import UNNAMED, parse_source_name
from ingest.files.regular import read_text

if TYPE_CHECKING:
    from ingest.settings.loading import Settings

_LARGEST = 1024 * 1024


def source_settings(settings: "Settings") -> "dict[str, Settings]":
    """Return the settings of each source by its name. Without a sources file, this is the unnamed source alone.

    Raises:
        ConfigError: the file cannot be used. The message contains the file and the path of the key.
    """
    if settings.sources is None:
        return {UNNAMED: settings}
    try:
        tables = tomllib.loads(read_text(Path(settings.sources), _LARGEST, "a file of sources"))["sources"]
    except (ValueError, KeyError) as error:
        raise ConfigError(f"INGEST_SOURCES: {error}") from error
    return {parse_source_name(name): settings.of_source(name, _values(table)) for name, table in tables.items()}


def _values(table: dict[str, Any]) -> dict[str, Any]:
    upstream = {f"upstream_{key}": value for key, value in table.pop("upstream", {}).items()}
    return {**table, **upstream}
