"""Reads the sources file, `INGEST_SOURCES`, and gives each source its own `Settings`.

A source has the settings of the process, with its own values for the external API, the processing and the queue.
"""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.domain.errors import ConfigError
from ingest.domain.source_name import UNNAMED, InvalidSourceName, parse_source_name
from ingest.domain.toml_errors import Keys, describe_location
from ingest.files.regular import read_text
from ingest.settings import PREFIX
from ingest.settings.names import is_of_file, key_of
from ingest.settings.source_values import TableProblem, values_of

if TYPE_CHECKING:
    from ingest.settings.loading import Settings

MOST_SOURCES = 1_000
"""Each source costs memory and connections in every worker process."""
_LARGEST = 4 * 1024 * 1024


def source_settings(settings: "Settings") -> "dict[str, Settings]":
    """Return the settings of each source by its name. Without a sources file, this is the unnamed source alone.

    Raises:
        ConfigError: the file cannot be used. The message contains the file, the line and the path of the key.
    """
    if settings.sources is None:
        return {UNNAMED: settings}
    _require_no_other_source(settings)
    file = Path(settings.sources)
    try:
        text = read_text(file, _LARGEST, "a file of sources")
    except ValueError as error:
        raise ConfigError(f"{PREFIX}SOURCES: {error}") from error
    with _located(file, text, ()):
        tables = _tables(text)
    sources = {}
    for name, table in tables.items():
        with _located(file, text, ("sources", name)):
            _check_name(name)
            values, files, webhook = values_of(table, file.parent)
            sources[name] = _with_placeholder(settings.of_source(name, values, files, webhook))
    return sources


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


def _require_no_other_source(settings: "Settings") -> None:
    """Require that no setting outside of the file describes a source."""
    names = [name for name in settings.configured() if is_of_file(name)]
    if names:
        variables = ", ".join(f"{PREFIX}{name.upper()}" for name in sorted(names))
        raise ConfigError(
            f"{variables}: set together with {PREFIX}SOURCES, whose file describes the sources: move it into the file, or remove it"
        )
