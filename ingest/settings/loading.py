"""Reads the settings of all topics."""

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlunsplit

from pydantic import PrivateAttr, SecretStr, ValidationError
from pydantic_settings import BaseSettings, DotEnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from ingest.domain.errors import ConfigError
from ingest.domain.masking import PLACEHOLDER, mask_url
from ingest.domain.redis_urls.redis_addresses import split_hosts
from ingest.domain.redis_urls.sentinel_url import with_sentinel_password
from ingest.domain.source_name import UNNAMED, queue_of
from ingest.files.watch import Identity, identity_of
from ingest.settings import PREFIX
from ingest.settings.names import describes_source
from ingest.settings.problems import problem_of
from ingest.settings.topics.api import ApiSettings
from ingest.settings.topics.connections import ConnectionSettings
from ingest.settings.topics.lists import ListSettings
from ingest.settings.topics.processing import ProcessingSettings
from ingest.settings.topics.telemetry import TelemetrySettings
from ingest.settings.topics.upstream import UpstreamSettings
from ingest.settings.topics.worker import WorkerSettings
from ingest.settings.variables import DOT_ENV, NamedFiles, files_of, require_trusted_dot_env
from ingest.settings.versions import table_versions, versions_of


class Settings(
    ApiSettings,
    TelemetrySettings,
    WorkerSettings,
    ProcessingSettings,
    ListSettings,
    UpstreamSettings,
    ConnectionSettings,
):
    """The effective settings. Durations are seconds.

    Create them with `load_settings`, which reports every invalid value in one line.
    """

    _files: dict[str, Path] = PrivateAttr(default_factory=dict)
    _source: str = PrivateAttr(UNNAMED)
    _webhook: Mapping[str, Any] | None = PrivateAttr(None)
    _version: str = PrivateAttr("")
    _overrides: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=DOT_ENV, env_file_encoding="utf-8", extra="ignore", frozen=True, defer_build=False
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the environment, then `.env`, each followed by the secret files that its `INGEST_…_FILE` variables name."""
        del file_secret_settings
        variables = dotenv_settings.env_vars if isinstance(dotenv_settings, DotEnvSettingsSource) else {}
        in_environment = NamedFiles(settings_cls, os.environ, "")
        in_dot_env = NamedFiles(settings_cls, variables, f"{DOT_ENV}: ")
        return init_settings, env_settings, in_environment, dotenv_settings, in_dot_env

    @property
    def source(self) -> str:
        """The name of the source that these settings describe, or an empty text without a sources file."""
        return self._source

    @property
    def webhook(self) -> Mapping[str, Any] | None:
        """The table of the webhook of a named source, as in the file of webhook sources. Its paths are relative to the sources file."""
        return self._webhook

    def of_source(
        self,
        name: str,
        values: Mapping[str, Any],
        files: Mapping[str, Path] = MappingProxyType({}),
        webhook: Mapping[str, Any] | None = None,
        version: str = "",
    ) -> "Settings":
        """Return the settings of a named source: these, with its own queue and its own values.

        Args:
            name: of the source.
            values: validated, by the name of the setting.
            files: that secrets were read from, by the name of the setting.
            webhook: the table of its webhook.
            version: of its table.
        """
        values = {key: value for key, value in values.items() if value is not None}
        values |= {key: value for key, value in self._overrides.items() if describes_source(key)}
        values["concurrency"] = min(self.concurrency, values.get("concurrency", self.concurrency))
        settings = self.model_copy(update={**values, "stream": queue_of(self.stream, name)})
        settings._source = name  # noqa: SLF001  of the same class, as below
        settings._webhook = webhook  # noqa: SLF001
        settings._version = version  # noqa: SLF001
        settings._files = {**self._files, **files}  # noqa: SLF001
        return settings

    def configured(self) -> set[str]:
        """Return the settings with a value in the environment, in `.env` or in a file, and not from the command line."""
        return self.model_fields_set - self._overrides.keys()

    def file_of(self, name: str) -> Path | None:
        """Return the file that the value of a setting was read from, or None."""
        return self._files.get(name)

    @property
    def followed(self) -> Mapping[Path, Identity]:
        """The files with the mapping and the list of the source. Workers open the source again when one has changed."""
        names = (self.mapping or "", self.order_list or "")
        # Others are the names of ready-made mappings and the tables of lists.
        files = [
            Path(name)
            for name in names
            if not name.lstrip().startswith("{") and ("/" in name or name.endswith(".toml"))
        ]
        return {file: identity_of(file) for file in files}

    @property
    def versions(self) -> Mapping[str, str]:
        """A digest of each file that the behaviour of the source depends on now, by its name, and of its table as it was read."""
        own = {Path(self.sources).name: self._version} if self.sources is not None and self._version else {}
        return own | versions_of(self.followed, self.transform)

    def current_versions(self) -> Mapping[str, str]:
        """As `versions`, with the table as it is now.

        Raises:
            ConfigError: the sources file cannot be used.
        """
        if not self.source:
            return self.versions
        file = Path(self.sources or "")
        return {**self.versions, file.name: table_versions(file).get(self.source, "")}

    def remember_origins(self, overrides: Mapping[str, Any]) -> None:
        """Record the values of the command line, and those from files, because a worker reloads some of them when they change."""
        self._overrides = overrides
        self._files.update(files_of(type(self).model_fields.keys() - overrides.keys()))


def load_settings(**overrides: Any) -> Settings:
    """Read the settings, and ignore overrides of None.

    Raises:
        ConfigError: a setting is invalid. The message contains its name and the problem, but no secret.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        require_trusted_dot_env()
        settings = _with_passwords(Settings(**given))
        settings.remember_origins(given)
    except ValidationError as error:
        raise ConfigError("; ".join(_describe(problem) for problem in error.errors())) from None
    except UnicodeDecodeError as error:
        raise ConfigError(".env is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f".env cannot be read: {error.strerror}") from error
    if problem := placeholder_problem(settings):
        raise ConfigError(f"{PREFIX}UPSTREAM_URL: {problem}")
    return settings


def placeholder_problem(settings: Settings) -> str | None:
    """Return the problem if requests would not contain the ID of an order."""
    body = settings.upstream_body.get_secret_value() if settings.upstream_body is not None else ""
    if PLACEHOLDER in settings.upstream_url or PLACEHOLDER in body:
        return None
    example = f"https://shop.example/orders/{PLACEHOLDER}"
    return f"must contain {PLACEHOLDER} exactly once, such as {example} (got {mask_url(settings.upstream_url)!r})"


def _with_passwords(settings: Settings) -> Settings:
    """Insert separate passwords, such as mounted secrets, into their URLs."""
    urls = {}
    for url_name, name in (("redis_url", "redis_password"), ("postgres_dsn", "postgres_password")):
        password: SecretStr | None = getattr(settings, name)
        if password is None:
            continue
        parts = split_hosts(getattr(settings, url_name).get_secret_value())
        if parts.password:
            raise ConfigError(
                f"{PREFIX}{name.upper()} is set, and {PREFIX}{url_name.upper()} contains a password: remove one of them"
            )
        user, _, host = parts.netloc.rpartition("@")
        account = f"{user.removesuffix(':')}:{quote(password.get_secret_value(), safe='')}"
        urls[url_name] = SecretStr(urlunsplit(parts._replace(netloc=f"{account}@{host}")))
    if settings.redis_sentinel_password is not None:
        url = urls.get("redis_url", settings.redis_url).get_secret_value()
        try:
            urls["redis_url"] = SecretStr(
                with_sentinel_password(url, settings.redis_sentinel_password.get_secret_value())
            )
        except ValueError as error:
            problem = f"{PREFIX}REDIS_SENTINEL_PASSWORD is set, and {PREFIX}REDIS_URL {error}: remove one of them"
            raise ConfigError(problem) from None
    return settings.model_copy(update=urls)


def unknown_settings(environ: Iterable[str], in_dot_env: Iterable[str] = ()) -> list[str]:
    """Return one line for each unknown `INGEST_` variable, which is most likely a typing mistake."""
    known = {name.upper() for name in Settings.model_fields}
    known |= {name + "_FILE" for name in known}
    lines = []
    for names, where in ((environ, ""), (in_dot_env, f"{DOT_ENV}: ")):
        given = {name.upper().removeprefix(PREFIX) for name in names if name.upper().startswith(PREFIX)}
        for name in sorted(given - known):
            near = get_close_matches(name, known, n=1)
            lines.append(
                f"{where}{PREFIX}{name}: unknown setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")
            )
    return lines


def _describe(problem: Any) -> str:
    name = str(problem["loc"][0]).lower()
    return f"{PREFIX}{name.upper()}: {problem_of(problem, name, Settings.model_fields.get(name))}"
