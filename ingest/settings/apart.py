"""The values of the settings, without what reads and validates them: one process reads them, another uses them."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from ingest.settings.loading import Settings

Known = tuple["Settings", Sequence[str]]
"""The settings, and a line for each unknown one."""


class Secret:
    """A secret value, which its text does not show; as Pydantic's `SecretStr`."""

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
    """The values of `Settings`, under the same names.

    Args:
        values: by name.
        files: where some of them were read from, by name.
    """

    _files: Mapping[str, Path]

    def __init__(self, values: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        self.__dict__.update(values, _files=files)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} cannot be changed: settings are read once")

    def file_of(self, name: str) -> Path | None:
        """As `Settings.file_of`."""
        return self._files.get(name)


def packed(settings: "Settings", unknown: Sequence[str]) -> bytes:
    """Return what `unpacked` takes."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    plain = {name: Secret(value.get_secret_value()) if _is_secret(value) else value for name, value in values.items()}
    files = {name: file for name in values if (file := settings.file_of(name)) is not None}
    return pickle.dumps((plain, files, tuple(unknown)))


def unpacked(data: bytes) -> Known:
    """Return the settings that a process of our own has packed; they have the attributes of `Settings` that are values."""
    plain, files, unknown = pickle.loads(data)  # noqa: S301  nobody else can write into the pipe
    return cast("Settings", Values(plain, files)), unknown


def _is_secret(value: object) -> bool:
    return hasattr(value, "get_secret_value")
