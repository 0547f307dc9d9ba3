"""Reads the names of the sources in the sources file, without the settings, whose modules would double the memory of the process."""

import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ingest.domain.errors import ConfigError
from ingest.domain.source_name import parse_source_name


class ConfiguredNames:
    """The names in a sources file, read again when it has changed. A file that cannot be read keeps the last names.

    Args:
        file: its path. None without one.
    """

    def __init__(self, file: str | None) -> None:
        self._file = None if file is None else Path(file)
        self._read_at: tuple[int, int] | None = None
        self._names: Sequence[str] = ()

    def current(self) -> Sequence[str]:
        """Return the names."""
        if self._file is None:
            return ()
        with suppress(OSError, ValueError, ConfigError):
            found = self._file.stat()
            state = found.st_mtime_ns, found.st_ino
            if state != self._read_at:
                with self._file.open("rb") as file:
                    sections = tomllib.load(file).get("sources", {})
                self._names = [parse_source_name(name) for name in sections]
                self._read_at = state
        return self._names
