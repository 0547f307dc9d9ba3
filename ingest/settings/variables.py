"""Reads settings from the environment, `.env`, and the secret files that either names."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from ingest.domain.errors import ConfigError
from ingest.files.permissions import require_trusted
from ingest.files.regular import read_once
from ingest.settings import PREFIX

DOT_ENV = ".env"
# The value of a setting is small, and a wrong file is not to be read to its end.
_LARGEST = 64 * 1024


class NamedFiles(PydanticBaseSettingsSource):
    """Reads `INGEST_X` from the file that `INGEST_X_FILE` names. Errors begin with `where`."""

    def __init__(self, settings_cls: type[BaseSettings], variables: Mapping[str, str | None], where: str) -> None:
        super().__init__(settings_cls)
        self._variables = {name.upper(): value for name, value in variables.items()}
        self._where = where

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """See the base class."""
        del field
        name = f"{PREFIX}{field_name.upper()}"
        path = self._variables.get(f"{name}_FILE")
        if path is None:
            return None, field_name, False
        if name in self._variables:
            raise ConfigError(f"{self._where}both {name} and {name}_FILE are set: remove one of them")
        if not path:
            raise ConfigError(f"{self._where}{name}_FILE: is empty: name a file, or remove it")
        if field_name in self.current_state:
            return None, field_name, False  # set by a source with precedence
        try:
            return read_value(Path(path)), field_name, False
        except ValueError as error:
            raise ConfigError(f"{self._where}{name}_FILE: {error}") from error

    def __call__(self) -> dict[str, Any]:
        """See the base class."""
        values = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in values.items() if value is not None}


def read_value(path: Path) -> str:
    """Return the value of a setting from a file.

    Raises:
        ValueError: the file cannot be used. The message names it.
    """
    try:
        content = read_once(path, _LARGEST)
        value = content.decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ValueError(f"cannot read {path}: {reason}") from error
    if len(content) > _LARGEST:
        raise ValueError(f"{path} is larger than {_LARGEST:,} bytes")
    return value


def files_of(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield the settings among `names` that come from a regular file, by the same precedence as their values."""
    sources = _by_precedence()
    for name in names:
        variable = f"{PREFIX}{name.upper()}"
        for source in sources.values():
            if variable in source or f"{variable}_FILE" in source:
                if (path := source.get(f"{variable}_FILE")) and Path(path).is_file():
                    yield name, Path(path)
                break


def origins_of(names: Iterable[str]) -> dict[str, tuple[str, str | None]]:
    """Return where the settings among `names` that are set come from, and their texts unless they are in a file.

    The origin is `environment`, `.env`, or the path of a file.
    """
    sources, found = _by_precedence(), {}
    for name in names:
        variable = f"{PREFIX}{name.upper()}"
        for place, source in sources.items():
            if variable in source or f"{variable}_FILE" in source:
                found[name] = source.get(f"{variable}_FILE") or place, source.get(variable)
                break
    return found


def _by_precedence() -> dict[str, dict[str, str | None]]:
    """Return the variables of the environment and of `.env`, in upper case."""
    places = {"environment": os.environ, DOT_ENV: _dot_env()}
    return {place: {name.upper(): value for name, value in given.items()} for place, given in places.items()}


def _dot_env() -> Mapping[str, str | None]:
    path = Path(DOT_ENV)
    return dotenv_values(path, encoding="utf-8") if path.is_file() else {}


def require_trusted_dot_env() -> None:
    """Require that no other user may change `.env`, if it exists.

    Raises:
        OSError: another user may change it.
    """
    path = Path(DOT_ENV)
    if path.exists() and not path.is_dir():
        require_trusted(path)


def names_in_dot_env() -> list[str]:
    """Return the variables in `.env`, or an empty list if it is missing or not a regular file (such as a pipe)."""
    path = Path(DOT_ENV)
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return [binding.key for binding in parse_stream(file) if binding.key is not None]
