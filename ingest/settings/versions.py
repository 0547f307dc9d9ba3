"""Digests of the files that the behaviour of a source depends on, by which processes compare the versions that they use."""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ingest.domain.errors import ConfigError
from ingest.files.watch import Identity, identity_of

# Characters. Too few to find a secret by its digest.
_LENGTH = 8


def versions_of(files: Iterable[Path], transform: str | None) -> dict[str, str]:
    """Return the version of each file that can be read, and of the module of a transform, by the name of the file."""
    module = None if transform is None else _file_of(transform.partition(":")[0])
    found = {}
    for file in [*files, *([module] if module is not None else [])]:
        try:
            found[file.name] = _digest(file.read_bytes())
        except OSError:
            continue
    return found


def version_of_table(table: Any) -> str:
    """Return the version of the table of a source. Its webhook does not matter to workers."""
    plain = {key: value for key, value in table.items() if key != "webhook"} if isinstance(table, Mapping) else table
    return _digest(json.dumps(plain, sort_keys=True, default=str).encode())


def table_versions(file: Path) -> Mapping[str, str]:
    """Return the version of the table of each source in the file as it is now. It is read only when it has changed.

    Raises:
        ConfigError: the file cannot be used.
    """
    return _versions_at(file, identity_of(file))


@lru_cache(maxsize=1)
def _versions_at(file: Path, identity: Identity) -> Mapping[str, str]:
    del identity
    import tomllib  # noqa: PLC0415  workers do not use it

    try:
        tables = tomllib.loads(file.read_text("utf-8"))["sources"]
        return {name: version_of_table(table) for name, table in tables.items()}
    except (OSError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: see `ingest config`") from error


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of added, changed and removed sources, by their settings."""
    return {
        "added": [name for name in now if name not in before],
        "changed": [name for name, settings in now.items() if name in before and settings != before[name]],
        "removed": [name for name in before if name not in now],
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_LENGTH]


def _file_of(module: str) -> Path | None:
    """Return the file of a module, without importing the packages around it."""
    places: list[str] | None = sys.path
    found = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:end]), places)
        if found is None:
            return None
        places = None if found.submodule_search_locations is None else [*found.submodule_search_locations]
    return Path(found.origin) if found is not None and found.origin is not None else None
