"""Validates the table of one source by the models of the settings."""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ingest.domain.toml_errors import Keys, TableProblem
from ingest.settings.names import UPSTREAM, key_of
from ingest.settings.problems import is_secret, problem_of
from ingest.settings.topics.lists import ListSettings
from ingest.settings.topics.processing import ProcessingSettings
from ingest.settings.topics.upstream import UpstreamSettings
from ingest.settings.types import Coalesce, Concurrency, Partitions
from ingest.settings.variables import read_value

WEBHOOK = "webhook"
_PATHS = frozenset({"upstream_ca_file", "upstream_cert_file", "upstream_key_file"})
_TABLES = {"upstream_headers": dict, "upstream_body": dict, "order_list": dict, "responses": list}
_FROM_FILE = "_file"


class SourceValues(NamedTuple):
    """The values in the table of a source.

    Attributes:
        values: by the name of the setting.
        files: the files that secrets were read from, by the name of the setting.
        webhook: the table of its webhook, as in the file of webhook sources.
    """

    values: Mapping[str, Any]
    files: Mapping[str, Path]
    webhook: Mapping[str, Any] | None


class _SourceModel(UpstreamSettings, ProcessingSettings, ListSettings):
    """The settings that describe a source. They come from its table only."""

    upstream_url: str
    concurrency: Concurrency | None = None
    coalesce: Coalesce | None = None
    partitions: Partitions | None = None

    model_config = SettingsConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return only the given values."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


_FIELDS = _SourceModel.model_fields
_SECRETS = frozenset(name for name, field in _FIELDS.items() if is_secret(field))
_SWITCHES = frozenset(name for name, field in _FIELDS.items() if get_args(field.annotation) == ("on", "off"))
KEYS = {key_of(name): name for name in _FIELDS} | {key_of(name + _FROM_FILE): name + _FROM_FILE for name in _SECRETS}
"""The keys of the table of a source and of its table `upstream`, with the setting, or the file of a secret, that each is for."""
TOP_KEYS = (*(keys[0] for keys in KEYS if len(keys) == 1), UPSTREAM, WEBHOOK)
"""The keys of the table of a source itself. A kind adds more."""


def values_of(table: Any, folder: Path) -> SourceValues:
    """Validate the table of a source. Paths in it are relative to the folder.

    Raises:
        TableProblem: it cannot be used.
    """
    return _validated(table, folder, read_value)


def values_without_secrets(table: Any, folder: Path) -> SourceValues:
    """As `values_of`, but does not read the files of secrets, and returns no value of these.

    Raises:
        TableProblem: the table cannot be used.
    """
    return _validated(table, folder, None)


def _validated(table: Any, folder: Path, read: Callable[[Path], str] | None) -> SourceValues:
    given, webhook = _given(table)
    files = {
        name: folder / _text(given.pop(name + _FROM_FILE), name) for name in _SECRETS if name + _FROM_FILE in given
    }
    for name, path in files.items():
        if name in given:
            keys = key_of(name)
            raise TableProblem(f"both `{keys[-1]}` and `{keys[-1]}_file` are set: remove one of them", keys)
        if read is None:
            continue
        try:
            given[name] = read(path)
        except ValueError as error:
            raise TableProblem(str(error), key_of(name + _FROM_FILE)) from None
    try:
        model = _SourceModel(**{name: _converted(name, value, folder) for name, value in given.items()})
    except ValidationError as error:
        raise _problem_in(error.errors()[0], files) from None
    values = {name: getattr(model, name) for name in model.model_fields_set}
    # A pipe cannot be read again when it changes.
    return SourceValues(values, {name: path for name, path in files.items() if path.is_file()}, webhook)


def _given(table: Any) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """Return the values by the name of the setting, and the table of the webhook."""
    rest = dict(_table(table, ()))
    webhook = _table(rest.pop(WEBHOOK), (WEBHOOK,)) if WEBHOOK in rest else None
    upstream = _table(rest.pop(UPSTREAM, {}), (UPSTREAM,))
    given = {(key,): value for key, value in rest.items()} | {(UPSTREAM, key): value for key, value in upstream.items()}
    for keys in given:
        if keys not in KEYS:
            raise TableProblem(_unknown(keys), keys)
    return {KEYS[keys]: value for keys, value in given.items()}, webhook


def _table(value: Any, keys: Keys) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TableProblem("must be a table", keys)
    return value


def _unknown(keys: tuple[str, ...]) -> str:
    *above, key = keys
    if not above and (UPSTREAM, key) in KEYS:
        return f"unknown key `{key}`: it belongs into the table `{UPSTREAM}`"
    known = [keys[-1] for keys in KEYS if [*keys[:-1]] == above] if above else TOP_KEYS
    near = get_close_matches(key, known, n=1)
    return f"unknown key `{key}`" + (f"; did you mean `{near[0]}`?" if near else "")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise TableProblem("must be the path of a file", key_of(name + _FROM_FILE))
    return value


def _converted(name: str, value: Any, folder: Path) -> Any:
    """Return a value of TOML in the form of a setting."""
    if name in _SWITCHES and isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, _TABLES.get(name, ())):
        return _as_json(name, value)
    if not isinstance(value, str):
        return value
    is_file = (
        name in _PATHS
        or name == "order_list"
        or (name == "mapping" and ("/" in value or value.endswith(".toml")))
        or (name == "upstream_oauth2_refresh_store" and value != "postgresql")
    )
    return str(folder / value) if is_file and value else value


def _as_json(name: str, table: Any) -> str:
    try:
        return json.dumps(table)
    except TypeError:
        raise TableProblem("must not contain dates and times of TOML: write texts", key_of(name)) from None


def _problem_in(problem: Any, files: Mapping[str, Path]) -> TableProblem:
    name = str(problem["loc"][0])
    if problem["type"] == "missing":
        return TableProblem(f"needs the key `{key_of(name)[-1]}`", key_of(name)[:-1])
    return TableProblem(problem_of(problem, name, _FIELDS[name]), key_of(name + _FROM_FILE if name in files else name))
