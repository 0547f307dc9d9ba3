"""Passes the values of the settings to another process, which does not import the code that reads and validates them."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

if TYPE_CHECKING:
    from ingest.settings.loading import Settings


class LoadedSettings(NamedTuple):
    """The settings of a process.

    Attributes:
        settings: of the process.
        sources: of each source that the process runs, by name.
        unknown: a line for each unknown setting.
        rejected: the problem of each source that cannot be used, by name.
    """

    settings: "Settings"
    sources: "Mapping[str, Settings]"
    unknown: Sequence[str]
    rejected: Mapping[str, str]


_Parts = tuple[Mapping[str, Any], Mapping[str, Path], str]


class Secret:
    """A secret value that is hidden in its representation, like Pydantic's `SecretStr`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

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

    def current_versions(self) -> Mapping[str, str]:
        """The versions that this process uses."""
        versions: Mapping[str, str] = self.__dict__["versions"]
        return versions

    def parts(self) -> "_Parts":
        """Return the parts that these values were made of."""
        values = {name: value for name, value in vars(self).items() if name not in {"_files", "source"}}
        return values, self._files, self.source

    def __eq__(self, other: object) -> bool:
        """Whether both have the same values. A value from a file may differ: it is read again whenever the file changes."""
        if not isinstance(other, Values) or self._files != other._files:
            return False
        mine, theirs = self.__dict__, other.__dict__
        return all(mine[name] == theirs.get(name) for name in mine if name not in self._files)

    __hash__ = None  # type: ignore[assignment]  # some values are mutable


def pack_settings(loaded: LoadedSettings) -> bytes:
    """Return the settings as bytes for `unpack_settings`."""
    sources = {name: _parts(settings) for name, settings in loaded.sources.items()}
    return pickle.dumps((_parts(loaded.settings), sources, tuple(loaded.unknown), dict(loaded.rejected)))


def unpack_settings(data: bytes) -> LoadedSettings:
    """Return the settings packed by a process of this service, with the value attributes of `Settings`."""
    parts, sources, unknown, rejected = pickle.loads(data)  # noqa: S301  other programs cannot write into the pipe
    return LoadedSettings(_values(parts), {name: _values(own) for name, own in sources.items()}, unknown, rejected)


def _parts(settings: "Settings | Values") -> _Parts:
    if isinstance(settings, Values):
        return settings.parts()
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    plain = {name: Secret(value.get_secret_value()) if _is_secret(value) else value for name, value in values.items()}
    files = {name: file for name in values if (file := settings.file_of(name)) is not None}
    # So that a source with another content of one of them is not equal.
    plain["followed"] = settings.followed
    # Read before the files are used, so that a later change is not reported as used.
    plain["versions"] = settings.versions
    return plain, files, settings.source


def _values(parts: _Parts) -> "Settings":
    return cast("Settings", Values(*parts))


def _is_secret(value: object) -> bool:
    return hasattr(value, "get_secret_value")
