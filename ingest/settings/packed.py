"""Passes the values of the settings to another process, which does not import the code that reads and validates them."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from ingest.settings.loading import Settings

LoadedSettings = tuple["Settings", Sequence[str]]
"""The settings, and a line for each unknown setting."""


class Secret:
    """A secret value that is hidden in its representation, like Pydantic's `SecretStr`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Secret('**********')"

    def __len__(self) -> int:
        return len(self._value)

    def get_secret_value(self) -> str:
        """Return the value."""
        return self._value


class Values:
    """The values of `Settings` under the same names, and the files that they were read from."""

    _files: Mapping[str, Path]
    source: str

    def __init__(self, values: Mapping[str, Any], files: Mapping[str, Path], source: str) -> None:
        self.__dict__.update(values, _files=files, source=source)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} cannot be changed: settings are read once")

    def file_of(self, name: str) -> Path | None:
        """See `Settings.file_of`."""
        return self._files.get(name)


def pack_settings(settings: "Settings", unknown: Sequence[str]) -> bytes:
    """Return the settings as bytes for `unpack_settings`."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    plain = {name: Secret(value.get_secret_value()) if _is_secret(value) else value for name, value in values.items()}
    files = {name: file for name in values if (file := settings.file_of(name)) is not None}
    return pickle.dumps((plain, files, settings.source, tuple(unknown)))


def unpack_settings(data: bytes) -> LoadedSettings:
    """Return the settings packed by a process of this service, with the value attributes of `Settings`."""
    plain, files, source, unknown = pickle.loads(data)  # noqa: S301  other programs cannot write into the pipe
    return cast("Settings", Values(plain, files, source)), unknown


def _is_secret(value: object) -> bool:
    return hasattr(value, "get_secret_value")
