"""Every setting with its value, secrets masked, and where the value comes from.

This is the environment, `.env`, a file that either names, the sources file, or the kind of a source.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ingest.settings import PREFIX
from ingest.settings.kinds.expansion import kind_of
from ingest.settings.loading import Settings
from ingest.settings.masked_values import OWN, effective, effective_source
from ingest.settings.names import key_of, setting_name
from ingest.settings.source_file import source_settings, source_tables
from ingest.settings.variables import origins_of

DEFAULT = "default"
"""The origin of a value that is not set."""
# The separate passwords that are inserted into a value.
_PASSWORDS = {"redis_url": ("redis_password", "redis_sentinel_password"), "postgres_dsn": ("postgres_password",)}


@dataclass(frozen=True, slots=True)
class ListedSetting:
    """A setting of the process or of a source.

    Attributes:
        name: the variable, or the path of the key in the sources file.
        value: with secrets masked, and numbers as they were written.
        origin: where it comes from.
        is_changed: whether it differs from the default. For a source, the default may be the value of the process.
        about: the description of the setting.
    """

    name: str
    value: Any
    origin: str
    is_changed: bool
    about: str


def listed_settings(settings: Settings) -> list[ListedSetting]:
    """Return all settings of the process, and then the settings of each named source.

    Raises:
        ConfigError: the sources file cannot be used.
    """
    tables = source_tables(settings)
    of_sources = source_settings(settings)
    return [
        *settings_of_process(settings),
        *(each for name, table in tables.items() for each in settings_of_source(settings, of_sources[name], table)),
    ]


def settings_of_process(settings: Settings) -> Iterator[ListedSetting]:
    """Yield the settings of the process."""
    values = {variable.removeprefix(PREFIX).lower(): value for variable, value in effective(settings).items()}
    origins = origins_of(Settings.model_fields)
    for name, value in values.items():
        field = Settings.model_fields[name]
        parts = [origins[each] for each in (name, *_PASSWORDS.get(name, ())) if each in origins]
        origin = ", ".join(dict.fromkeys(place for place, _ in parts)) or DEFAULT
        is_changed = getattr(settings, name) != field.default
        written = _as_written(value, parts[0][1] if parts else None)
        yield ListedSetting(setting_name("", name), written, origin, is_changed, field.description or "")


def settings_of_source(settings: Settings, own: Settings, table: Mapping[str, Any]) -> Iterator[ListedSetting]:
    """Yield the settings of a named source.

    Args:
        settings: of the process.
        own: of the source.
        table: of the source in the sources file.
    """
    for name, value in effective_source(own).items():
        field = Settings.model_fields[name]
        default = getattr(settings, name) if name in OWN else field.default
        written = _in_table(table, key_of(name))
        is_changed = getattr(own, name) != default
        if (file := own.file_of(name)) is not None and name not in OWN:
            origin = str(file)
        elif written is not None:
            origin = str(settings.sources)
        else:
            origin = f"kind {kind_of(table)}" if is_changed else DEFAULT
        shown = _as_written(value, written)
        yield ListedSetting(setting_name(own.source, name), shown, origin, is_changed, field.description or "")


def _as_written(value: Any, written: Any) -> Any:
    """Return a duration or another number as the user has written it, such as `5m`. No number is a secret."""
    return written if isinstance(value, float) and written is not None else value


def _in_table(table: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(table, dict) or key not in table:
            return None
        table = table[key]
    return table
