"""Reads the sources file, `INGEST_SOURCES`, and gives each source its own `Settings`.

A source has the settings of the process, with its own values for the external API, the processing and the queue.
"""

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.domain.errors import ConfigError
from ingest.domain.source_name import UNNAMED, InvalidSourceName, parse_source_name
from ingest.domain.toml_errors import Keys, TableProblem, describe_location
from ingest.files.regular import read_text
from ingest.settings import PREFIX
from ingest.settings.kinds.expansion import expand, kind_of
from ingest.settings.names import is_of_file, key_of
from ingest.settings.source_values import SourceValues, values_of, values_without_secrets
from ingest.settings.versions import version_of_table

if TYPE_CHECKING:
    from ingest.settings.loading import Settings

MOST_SOURCES = 1_000
"""Each source costs memory and connections in every worker process."""
Read = Callable[[Any, Path], SourceValues]
_LARGEST = 4 * 1024 * 1024


def source_names(settings: "Settings") -> list[str]:
    """Return the names of all sources. Reads neither their values nor the files that these name.

    Raises:
        ConfigError: the file cannot be used.
    """
    if settings.sources is None:
        return [UNNAMED]
    return list(_read_tables(settings)[2])


def source_tables(settings: "Settings") -> dict[str, Any]:
    """Return the tables of all sources as they are in the file, by their names. Without the file, there are none.

    Raises:
        ConfigError: the file cannot be used.
    """
    return {} if settings.sources is None else _read_tables(settings)[2]


def source_kinds(settings: "Settings") -> dict[str, str]:
    """Return the kinds of the sources that are of a known kind.

    Raises:
        ConfigError: the file cannot be used.
    """
    return {name: kind for name, table in source_tables(settings).items() if (kind := kind_of(table)) is not None}


def source_settings(settings: "Settings", only: Collection[str] | None = None) -> "dict[str, Settings]":
    """Return the settings of each source by its name. Without a sources file, this is only the unnamed source.

    Args:
        settings: of the process.
        only: the names of existing sources. The tables and secrets of the others are not read. None for all sources.

    Raises:
        ConfigError: the file cannot be used. The message contains the file, the line and the path of the key.
    """
    return _settings_of(settings, values_of, only)


def usable_source_settings(
    settings: "Settings", only: Collection[str] | None = None, read: Read = values_of
) -> "tuple[dict[str, Settings], dict[str, str]]":
    """As `source_settings`, but one source that cannot be used does not keep the others from running.

    Returns:
        The settings of the usable sources, and the problems of the others, by name.

    Raises:
        ConfigError: the file cannot be used.
    """
    rejected: dict[str, str] = {}
    return _settings_of(settings, read, only, rejected), rejected


def source_settings_without_secrets(settings: "Settings", only: Collection[str] | None = None) -> "dict[str, Settings]":
    """As `source_settings`, for a process that sends no requests to external APIs. It does not need their credentials.

    Raises:
        ConfigError: the file cannot be used.
    """
    return _settings_of(settings, values_without_secrets, only)


def _settings_of(
    settings: "Settings",
    read: Read,
    only: Collection[str] | None = None,
    rejected: dict[str, str] | None = None,
) -> "dict[str, Settings]":
    """Return the settings of the sources. Their problems are added to `rejected`, or raised without it."""
    if settings.sources is None:
        return {UNNAMED: settings}
    file, text, tables = _read_tables(settings)
    sources = {}
    for name, table in tables.items():
        if only is not None and name not in only:
            continue
        try:
            with _located(file, text, ("sources", name)):
                found = _values_in(table, file.parent, read)
                version = version_of_table(table)
                own = settings.of_source(name, found.values, found.files, found.webhook, version)
                sources[name] = _with_placeholder(own) if read is values_of else own
        except ConfigError as error:
            if rejected is None:
                raise
            rejected[name] = str(error)
    with _located(file, text, ("sources",)):
        _require_equal_limits(sources)
    return sources


def _values_in(table: Any, folder: Path, read: Read) -> SourceValues:
    """Return the values in a table, which may be of a known kind."""
    expanded = expand(table)
    try:
        return read(expanded.table, folder)
    except TableProblem as error:
        keys = error.keys if _contains(table, error.keys) else expanded.origins.get(error.keys, error.keys)
        raise TableProblem(error.problem, keys) from None


def _contains(table: Any, keys: Keys) -> bool:
    for key in keys:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


def _read_tables(settings: "Settings") -> tuple[Path, str, dict[str, Any]]:
    """Return the file, its text, and the tables of the sources by their names."""
    _require_no_other_source(settings)
    file = Path(settings.sources or "")
    try:
        text = read_text(file, _LARGEST, "a file of sources")
    except ValueError as error:
        raise ConfigError(f"{PREFIX}SOURCES: {error}") from error
    with _located(file, text, ()):
        tables = _tables(text)
    for name in tables:
        with _located(file, text, ("sources", name)):
            _check_name(name)
    return file, text, tables


def problem_in_source(settings: "Settings", problem: str, keys: Keys) -> ConfigError:
    """Return the error for a problem that another part finds in the table of a source.

    Args:
        settings: of the source.
        problem: the error, never a secret.
        keys: the location within the table of the source.
    """
    file = Path(settings.sources or "")
    try:
        text = read_text(file, _LARGEST, "a file of sources")
    except ValueError:
        text = ""
    return _error(file, text, problem, ("sources", settings.source, *keys))


def _error(file: Path, text: str, problem: str, keys: Keys) -> ConfigError:
    return ConfigError(f"{PREFIX}SOURCES: {', '.join([str(file), *describe_location(keys, text)])}: {problem}")


@contextmanager
def _located(file: Path, text: str, above: Keys) -> Iterator[None]:
    try:
        yield
    except TableProblem as error:
        raise _error(file, text, error.problem, (*above, *error.keys)) from None


def _tables(text: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for thousands of digits
        raise TableProblem(f"not TOML: {error}") from None
    for key in data:
        if key != "sources":
            raise TableProblem(f"unknown key `{key}`: write a table [sources.NAME] for each source", (key,))
    tables = data.get("sources")
    if not isinstance(tables, dict) or not tables:
        raise TableProblem("contains no source: write a table [sources.NAME] for each")
    if len(tables) > MOST_SOURCES:
        raise TableProblem(f"contains {len(tables):,} sources, and the most are {MOST_SOURCES:,}", ("sources",))
    return tables


def _check_name(text: str) -> None:
    try:
        parse_source_name(text)
    except InvalidSourceName as error:
        raise TableProblem(str(error)) from None


def _with_placeholder(settings: "Settings") -> "Settings":
    from ingest.settings.loading import placeholder_problem  # noqa: PLC0415  who has settings has imported it

    if problem := placeholder_problem(settings):
        raise TableProblem(problem, key_of("upstream_url"))
    return settings


def _require_equal_limits(sources: "Mapping[str, Settings]") -> None:
    """Require that sources with the same quota have the same limits, because each request applies the limits of its source."""
    first: dict[str, str] = {}
    for name, settings in sources.items():
        if settings.upstream_quota is None:
            continue
        other = first.setdefault(settings.upstream_quota, name)
        for field in (
            "upstream_rate",
            "upstream_cost",
            "upstream_burst",
            "upstream_rate_header",
            "upstream_concurrency",
        ):
            if getattr(settings, field) != getattr(sources[other], field):
                keys = key_of(field)
                problem = (
                    f"must be the same as in sources.{other}, which has the same quota {settings.upstream_quota!r}"
                )
                raise TableProblem(f"`{keys[-1]}` {problem}", (name, *keys))


def _require_no_other_source(settings: "Settings") -> None:
    """Require that no setting outside of the file describes a source."""
    names = [name for name in settings.configured() if is_of_file(name)]
    if names:
        variables = ", ".join(f"{PREFIX}{name.upper()}" for name in sorted(names))
        raise ConfigError(
            f"{variables}: set together with {PREFIX}SOURCES, whose file describes the sources: move it into the file, or remove it"
        )
