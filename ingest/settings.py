"""Every knob of the service, read from the environment, `.env` and secret files.

A setting `INGEST_X` may also be given as `INGEST_X_FILE`, the path of a file that holds its value
(a mounted secret, say). What is set in the environment goes before `.env`; what the command line
sets goes before both.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from dotenv.parser import parse_stream
from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, DotEnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from ingest.domain.errors import ConfigError
from ingest.domain.masking import MASK, PLACEHOLDER, mask_url

PREFIX = "INGEST_"
_DOT_ENV = ".env"
_URLS = ("_url", "_dsn")
# Looking more often for shorter blocks would cost more than it tells; they are in the lag's histogram.
_SHORTEST_BLOCK = 0.1

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Positive = Annotated[int, Field(gt=0)]
KeyPart = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """The effective settings. Durations are seconds.

    Build it with `load_settings`, which turns every mistake into one clear line.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=_DOT_ENV, env_file_encoding="utf-8", extra="ignore", frozen=True
    )

    redis_url: SecretStr = Field(
        SecretStr("redis://127.0.0.1:6379/0"), description="Redis or Valkey: redis://, rediss:// or unix://"
    )
    postgres_dsn: SecretStr = Field(
        SecretStr("postgresql://127.0.0.1:5432/ingest"),
        description="PostgreSQL: postgresql://user:password@host/db, or several hosts: host1,host2",
    )
    redis_password: SecretStr | None = Field(None, description="The password, if the Redis URL has none")
    postgres_password: SecretStr | None = Field(None, description="The password, if the PostgreSQL DSN has none")
    upstream_url: str = Field(
        "http://127.0.0.1:8081/orders/{order_id}", description="The external API, a template with {order_id}"
    )
    upstream_token: SecretStr | None = Field(None, description="Bearer token for the external API")
    stream: KeyPart = Field("orders", description="Name of the queue")
    group: KeyPart = Field("ingest", description="Name of the consumer group")
    processes: Annotated[int, Field(gt=0, le=256)] = Field(2, description="Worker processes of one `ingest worker`")
    concurrency: Annotated[int, Field(gt=0, le=10_000)] = Field(100, description="Orders in flight, in each process")
    upstream_connect_timeout: Seconds = Field(5.0, description="Connecting to the external API")
    upstream_read_timeout: Seconds = Field(15.0, description="Silence of the external API within an answer")
    upstream_timeout: Seconds = Field(30.0, description="One request to the external API, all in all")
    upstream_tries: Positive = Field(3, description="Quick tries of a request within one attempt")
    upstream_body_limit: Positive = Field(4 * 1024 * 1024, description="Largest order document, in bytes")
    upstream_client: Annotated[Literal["aiohttp", "curl"], BeforeValidator(_lower)] = Field(
        "aiohttp", description="What asks the external API: aiohttp, or curl (extra `curl`; less processor time)"
    )
    heartbeat_ttl: Annotated[float, Field(ge=0.5, allow_inf_nan=False)] = Field(
        6.0, description="A worker process silent this long is taken for dead, and others take over at once"
    )
    claim_idle: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        30.0, description="Lease: a message that its living worker has not renewed this long is redelivered"
    )
    max_attempts: Positive = Field(10, description="Failed attempts before an order is a dead letter")
    # With 1, whatever was in hand with a poison would count as poison, too.
    max_deliveries: Annotated[int, Field(ge=2)] = Field(
        10, description="Deliveries before a message is taken for poison"
    )
    batch_rows: Annotated[int, Field(gt=0, le=5_000)] = Field(500, description="Most rows in one transaction")
    batch_bytes: Positive = Field(
        64 * 1024 * 1024, description="Most bytes of documents between fetch and commit, in each process"
    )
    shutdown_grace: Seconds = Field(25.0, description="Time to finish after SIGTERM")
    backlog_limit: Annotated[int, Field(ge=0)] = Field(0, description="Producers wait above this backlog; 0: no limit")
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = Field(9464, description="Port of /metrics; 0: none")
    metrics_host: str = Field("127.0.0.1", description="Address that /metrics listens on")
    # Long before a heartbeat is missed: a loop that is blocked for `heartbeat_ttl` looks like a dead process.
    loop_block_warning: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        1.0,
        description="Warn, with the stack, when the event loop is blocked for longer than this (at least 0.1); 0: never",
    )
    log_format: Annotated[Literal["json", "console"], BeforeValidator(_lower)] = Field(
        "console", description="json or console"
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        "info", description="debug, info, warning or error"
    )

    @field_validator("redis_url")
    @classmethod
    def _redis_scheme(cls, value: SecretStr) -> SecretStr:
        url = value.get_secret_value()
        _refuse_many_redis(url)
        _require_scheme(url, ("redis", "rediss", "unix"), "redis://host:6379/0")
        _require_encoded_password(url)
        if urlsplit(url).query:
            _require_known_options(url)
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis_database(cls, value: SecretStr) -> SecretStr:
        # The client takes what is no number for database 0, and 1/2 for 12.
        parts = urlsplit(value.get_secret_value())
        path = parts.path if parts.scheme in {"redis", "rediss"} else ""
        option = next((text for name, text in parse_qsl(parts.query) if name == "db"), "0")
        if not (re.fullmatch(r"/?|/[0-9]+", path) and re.fullmatch(r"[0-9]+", option)):
            raise ValueError("must name the database by its number, such as redis://host:6379/0")
        return value

    @field_validator("postgres_dsn")
    @classmethod
    def _postgres_scheme(cls, value: SecretStr) -> SecretStr:
        example = "postgresql://user:password@host:5432/database"
        _require_scheme(value.get_secret_value(), ("postgresql", "postgres"), example, several_hosts=True)
        _require_encoded_password(value.get_secret_value())
        return value

    @field_validator("redis_password", "postgres_password")
    @classmethod
    def _password(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value():
            raise ValueError("is empty")
        return value

    @field_validator("upstream_token")
    @classmethod
    def _token(cls, value: SecretStr | None) -> SecretStr | None:
        token = value.get_secret_value().strip() if value else ""
        if value is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
            raise ValueError("must be printable ASCII without spaces, as it goes into a header")
        return SecretStr(token) if value is not None else None

    @field_validator("loop_block_warning")
    @classmethod
    def _no_tiny_block(cls, value: float) -> float:
        if 0 < value < _SHORTEST_BLOCK:
            raise ValueError(f"must be at least {_SHORTEST_BLOCK}, or 0 for no warning")
        return value

    @field_validator("upstream_url")
    @classmethod
    def _upstream_template(cls, value: str) -> str:
        _require_scheme(value, ("http", "https"), "https://shop.example/orders/{order_id}")
        if value.count(PLACEHOLDER) != 1:
            raise ValueError("must hold {order_id} once, such as https://shop.example/orders/{order_id}")
        parts = urlsplit(value)
        if not parts.hostname or "{" in parts.netloc or PLACEHOLDER in parts.fragment:
            raise ValueError("must name a host, with {order_id} in the path or the query")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put the secret files named by `INGEST_…_FILE` behind what names them: the environment, then `.env`."""
        del file_secret_settings
        variables = dotenv_settings.env_vars if isinstance(dotenv_settings, DotEnvSettingsSource) else {}
        in_environment = _NamedFiles(settings_cls, os.environ, "")
        in_dot_env = _NamedFiles(settings_cls, variables, f"{_DOT_ENV}: ")
        return init_settings, env_settings, in_environment, dotenv_settings, in_dot_env


class _NamedFiles(PydanticBaseSettingsSource):
    """Reads `INGEST_X` from the file that `INGEST_X_FILE` names.

    Args:
        variables: where these names are set.
        where: put before what is wrong with one of them.
    """

    def __init__(self, settings_cls: type[BaseSettings], variables: Mapping[str, str | None], where: str) -> None:
        super().__init__(settings_cls)
        self._variables = {name.upper(): value for name, value in variables.items()}
        self._where = where

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        del field
        name = f"{PREFIX}{field_name.upper()}"
        path = self._variables.get(f"{name}_FILE")
        if path is None:
            return None, field_name, False
        if name in self._variables:
            raise ConfigError(f"{self._where}both {name} and {name}_FILE are set: keep one")
        if field_name in self.current_state:
            return None, field_name, False  # set by what goes before
        try:
            return Path(path).read_text(encoding="utf-8").strip(), field_name, False
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError(f"{self._where}{name}_FILE: cannot read {path}: {reason}") from error

    def __call__(self) -> dict[str, Any]:
        values = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in values.items() if value is not None}


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; an override that is None counts as not given.

    Raises:
        ConfigError: naming the setting and what is wrong with it, without a secret's value.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return _with_passwords(Settings(**given))
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(problem) for problem in error.errors())) from None
    except UnicodeDecodeError as error:
        raise ConfigError(".env is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f".env cannot be read: {error.strerror}") from error


def _with_passwords(settings: Settings) -> Settings:
    """Put the passwords that came by themselves, as mounted secrets do, into the URLs they belong to."""
    urls = {}
    for url_name, name in (("redis_url", "redis_password"), ("postgres_dsn", "postgres_password")):
        password: SecretStr | None = getattr(settings, name)
        if password is None:
            continue
        parts = urlsplit(getattr(settings, url_name).get_secret_value())
        if parts.password:
            raise ConfigError(f"{PREFIX}{name.upper()} is set, and {PREFIX}{url_name.upper()} has a password: keep one")
        user, _, host = parts.netloc.rpartition("@")
        account = f"{user.removesuffix(':')}:{quote(password.get_secret_value(), safe='')}"
        urls[url_name] = SecretStr(urlunsplit(parts._replace(netloc=f"{account}@{host}")))
    return settings.model_copy(update=urls)


def unknown_settings(environ: Iterable[str], in_dot_env: Iterable[str] = ()) -> list[str]:
    """One line for each `INGEST_` variable that is no setting: a typing mistake, most likely.

    Args:
        environ: names in the environment.
        in_dot_env: names in `.env`.
    """
    return [*_unknown(environ, ""), *_unknown(in_dot_env, f"{_DOT_ENV}: ")]


def _unknown(names: Iterable[str], where: str) -> Iterator[str]:
    known = {name.upper() for name in Settings.model_fields}
    known |= {name + "_FILE" for name in known}
    given = {name.upper().removeprefix(PREFIX) for name in names if name.upper().startswith(PREFIX)}
    for name in sorted(given - known):
        near = get_close_matches(name, known, n=1)
        yield f"{where}{PREFIX}{name} is no setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")


def names_in_dot_env() -> list[str]:
    """The variables that `.env` sets; none where there is no such file, or it is one that can be read only once."""
    path = Path(_DOT_ENV)
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return [binding.key for binding in parse_stream(file) if binding.key is not None]


def effective(settings: Settings) -> dict[str, Any]:
    """All values by variable name, passwords and tokens masked."""
    values: dict[str, Any] = {}
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value() if name.endswith(_URLS) else MASK
        if name.endswith(_URLS):
            value = mask_url(value)
        values[PREFIX + name.upper()] = value
    return values


def _refuse_many_redis(url: str) -> None:
    scheme = url.partition("://")[0].lower()
    if "sentinel" in scheme:
        raise ValueError(
            "names Sentinels, which are not supported yet: write redis://host:6379/0 with a host that leads to the primary, also "
            "after a failover (a proxy that asks Sentinel, a virtual IP, a Kubernetes service)"
        )
    if "cluster" in scheme:
        raise ValueError(
            "names a Redis Cluster, which is not supported yet: write redis://host:6379/0 of a Redis without cluster mode"
        )


def _require_scheme(url: str, schemes: tuple[str, ...], example: str, *, several_hosts: bool = False) -> None:
    expected = f"must start with {' or '.join(scheme + '://' for scheme in schemes)}, such as {example}"
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        for host in hosts.split(",") if several_hosts else [hosts]:
            _ = urlsplit(f"//{host}").port  # computed, and raises, only when asked for
    except ValueError:
        raise ValueError(f"is no URL, or its port is no number: {expected}") from None
    if parts.scheme not in schemes:
        raise ValueError(expected)


def _require_known_options(url: str) -> None:
    # What has no options need not wait for the client: `ingest health` asks every few seconds.
    from redis.asyncio import ConnectionPool  # noqa: PLC0415

    try:
        # Asking for a connection object is the only check there is.
        pool = ConnectionPool.from_url(url)
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError):
        raise ValueError("has an option that the Redis client does not know, or one with a wrong value") from None


def _require_encoded_password(url: str) -> None:
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError("has / ? or # in its password: write %2F %3F %23 for them")


def _explain(problem: Any) -> str:
    name = PREFIX + str(problem["loc"][0]).upper()
    message = problem["msg"].removeprefix("Value error, ")
    given = _showable(name, problem["input"])
    return f"{name}: {message[0].lower()}{message[1:]}" + ("" if given is None else f" (got {given!r})")


def _showable(name: str, given: object) -> object:
    """A wrong value as it may be shown; None if it may not."""
    field = Settings.model_fields.get(name.removeprefix(PREFIX).lower())
    if field is None or "SecretStr" in str(field.annotation):
        return None
    if not (name.lower().endswith(_URLS) and isinstance(given, str)):
        return given
    try:
        _require_scheme(given, ("http", "https"), "")
    except ValueError:
        return None  # where there is no telling its parts, a key may be in any
    return mask_url(given)
