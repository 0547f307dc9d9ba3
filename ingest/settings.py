"""All settings of the service, read from the environment, `.env` and secret files.

A setting `INGEST_X` may also be given as `INGEST_X_FILE`, the path of a file that holds its value (such as a mounted
secret). The environment takes precedence over `.env`, and the command line takes precedence over both.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import BeforeValidator, Field, PrivateAttr, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, DotEnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from ingest.domain.errors import ConfigError
from ingest.domain.masking import BULK_PLACEHOLDER, MASK, PLACEHOLDER, mask_url
from ingest.domain.request_headers import check_header_name, check_secret, check_token, parse_headers
from ingest.domain.status_overrides import parse_status_overrides
from ingest.settings_api import ApiSettings

PREFIX = "INGEST_"
_DOT_ENV = ".env"
_URLS = ("_url", "_dsn")
# Checking often enough for shorter blocks would cost more than it is worth; the lag histogram shows them.
_SHORTEST_BLOCK = 0.1
_FUNCTION = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*"

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Positive = Annotated[int, Field(gt=0)]
MemberPath = Annotated[str, Field(pattern=r"^[^.\s\x00-\x1f]{1,64}(\.[^.\s\x00-\x1f]{1,64}){0,7}$")]
KeyPart = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


OnOff = Annotated[Literal["on", "off"], BeforeValidator(_lower)]


class Settings(ApiSettings):
    """The effective settings. Durations are seconds.

    Create them with `load_settings`, which reports every invalid value in one clear line.
    """

    _files: dict[str, Path] = PrivateAttr(default_factory=dict)

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
        "http://127.0.0.1:8081/orders/{order_id}", description="URL of the external API, a template with {order_id}"
    )
    upstream_token: SecretStr | None = Field(
        None, description="Bearer token for the external API; with header: the key"
    )
    # -- requests to the external API; what depends on several of them is checked by `ingest.endpoint` ----------------
    upstream_method: Annotated[Literal["GET", "POST"], BeforeValidator(_upper)] = Field(
        "GET", description="Method of requests to the external API: GET or POST"
    )
    upstream_body: str | None = Field(
        None, description="Body of a POST, a template with {order_id}; JSON unless a header says otherwise"
    )
    upstream_headers: SecretStr | None = Field(
        None, description="Further headers of requests: a line `Name: value` for each, or a JSON object"
    )
    upstream_auth: Annotated[Literal["none", "bearer", "basic", "header", "oauth2"], BeforeValidator(_lower)] = Field(
        "none", description="Credential of requests: none (bearer if a token is set), bearer, basic, header or oauth2"
    )
    upstream_auth_header: str = Field(
        "X-Api-Key", description="With header: the name of the header that the token goes into"
    )
    upstream_user: SecretStr | None = Field(None, description="With basic: the user")
    upstream_password: SecretStr | None = Field(None, description="With basic: the password")
    upstream_oauth2_url: str | None = Field(None, description="With oauth2: URL of the token endpoint")
    upstream_oauth2_client_id: SecretStr | None = Field(None, description="With oauth2: the client ID")
    upstream_oauth2_client_secret: SecretStr | None = Field(None, description="With oauth2: the client secret")
    upstream_oauth2_client_auth: Annotated[Literal["basic", "body"], BeforeValidator(_lower)] = Field(
        "basic",
        description="With oauth2: where the token request has the client ID and secret, basic (a header) or body",
    )
    upstream_oauth2_scope: str | None = Field(None, description="With oauth2: the scope to ask for")
    upstream_oauth2_parameters: str | None = Field(
        None, description="With oauth2: further parameters of the token request, such as audience=https://shop.example"
    )
    upstream_ca_file: str | None = Field(
        None, description="PEM file of the authorities to trust for the external API, instead of the system's"
    )
    upstream_cert_file: str | None = Field(None, description="PEM file of the client certificate for the external API")
    upstream_key_file: str | None = Field(
        None, description="PEM file of its private key, if the certificate's file has none"
    )
    upstream_status: str | None = Field(
        None,
        description="What statuses mean: 404=retry:1h, 409=retry, 451=not_found, 423=throttled:30s, 402=credential",
    )
    # -----------------------------------------------------------------------------------------------------------------
    mapping: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="Mapping of the external API's documents to orders: a TOML file, or one of amazon, shopify and woocommerce",
    )
    stream: KeyPart = Field("orders", description="Name of the queue")
    group: KeyPart = Field("ingest", description="Name of the consumer group")
    processes: Annotated[int, Field(gt=0, le=256)] = Field(2, description="Worker processes of one `ingest worker`")
    concurrency: Annotated[int, Field(gt=0, le=10_000)] = Field(100, description="Orders in flight, in each process")
    upstream_connect_timeout: Seconds = Field(5.0, description="Time limit for connecting to the external API")
    upstream_read_timeout: Seconds = Field(15.0, description="Longest pause within a response of the external API")
    upstream_timeout: Seconds = Field(30.0, description="Time limit for one request to the external API, in total")
    upstream_tries: Positive = Field(3, description="Immediate tries of a request within one attempt")
    upstream_body_limit: Positive = Field(4 * 1024 * 1024, description="Maximum size of an order document, in bytes")
    upstream_client: Annotated[Literal["aiohttp", "curl"], BeforeValidator(_lower)] = Field(
        "aiohttp", description="HTTP client for the external API: aiohttp, or curl (extra `curl`; needs less CPU time)"
    )
    upstream_bulk_url: str = Field(
        "",
        description="URL of the list endpoint of the external API, a template with {order_ids}; empty: one request for each order",
    )
    upstream_bulk_size: Annotated[int, Field(gt=0, le=1_000)] = Field(
        50, description="Maximum number of orders in one request to INGEST_UPSTREAM_BULK_URL"
    )
    upstream_bulk_path: MemberPath | Literal[""] = Field(
        "",
        description="Where the list is in its answer, such as data.orders; by default the answer is the list, or has only one",
    )
    upstream_bulk_id: MemberPath = Field("id", description="Where the order ID is in each document of that list")
    upstream_adaptive: OnOff = Field(
        "off",
        description="on: within INGEST_CONCURRENCY, find how many requests at a time the external API can process",
    )
    upstream_rate: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0, description="Requests per second to the external API over all processes; 0: unlimited"
    )
    upstream_burst: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Requests that may be sent at once after a time with fewer; 0: a hundredth of a second's requests",
    )
    upstream_concurrency: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Requests at a time to the external API over all processes; 0: unlimited"
    )
    upstream_quota: KeyPart | None = Field(
        None, description="Name of the quota, for services that share one; by default the host of the external API"
    )
    heartbeat_ttl: Annotated[float, Field(ge=0.5, allow_inf_nan=False)] = Field(
        6.0,
        description="A worker process without a heartbeat for this long counts as dead, and others reclaim its entries immediately",
    )
    claim_idle: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        30.0, description="Lease: an entry that its live worker has not renewed for this long is redelivered"
    )
    max_attempts: Positive = Field(10, description="Failed attempts after which an order is dead-lettered")
    # With 1, every entry that was in flight together with a poison message would be dead-lettered as well.
    max_deliveries: Annotated[int, Field(ge=2)] = Field(
        10, description="Deliveries after which an entry counts as a poison message"
    )
    batch_rows: Annotated[int, Field(gt=0, le=5_000)] = Field(
        500, description="Maximum number of rows in one transaction"
    )
    batch_bytes: Positive = Field(
        64 * 1024 * 1024, description="Maximum size of the documents between fetch and commit in each process, in bytes"
    )
    transform: str | None = Field(
        None, description="Your own function between fetching and storing an order, `package.module:function`"
    )
    transform_processes: Annotated[int, Field(ge=0, le=64)] = Field(
        0, description="Processes that run the transform, for each worker process; 0: it runs in the event loop"
    )
    transform_timeout: Seconds = Field(
        10.0, description="Time limit for one call of the transform: of an async function, or in a process of its own"
    )
    transform_memory: Annotated[int, Field(ge=0)] = Field(
        1024 * 1024 * 1024, description="Memory that a transform process may use, in bytes (Linux); 0: no limit"
    )
    keep_document: OnOff = Field(
        "off", description="Store the raw document with each order, for `ingest remap`: on or off"
    )
    results: OnOff = Field("off", description="Tell what has become of each order, in the results stream: on or off")
    results_age: Seconds = Field(86_400.0, description="How long results are kept")
    shutdown_grace: Seconds = Field(25.0, description="Time to finish orders in flight after SIGTERM")
    backlog_limit: Annotated[int, Field(ge=0)] = Field(
        0, description="Producers wait while the backlog is larger; 0: no limit"
    )
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = Field(9464, description="Port of /metrics; 0: disabled")
    metrics_host: str = Field("127.0.0.1", description="Address on which /metrics listens")
    # Well before a heartbeat is missed: a process whose loop is blocked for `heartbeat_ttl` counts as dead.
    loop_block_warning: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        1.0,
        description="Log a warning with the stack when the event loop is blocked for longer than this (at least 0.1); 0: never",
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
        # The client reads a path that is not a number as database 0, and 1/2 as 12.
        parts = urlsplit(value.get_secret_value())
        path = parts.path if parts.scheme in {"redis", "rediss"} else ""
        option = next((text for name, text in parse_qsl(parts.query) if name == "db"), "0")
        if not (re.fullmatch(r"/?|/[0-9]+", path) and re.fullmatch(r"[0-9]+", option)):
            raise ValueError("must name the database by its number, such as redis://host:6379/0")
        return value

    @field_validator("postgres_dsn", "outbox_dsn")
    @classmethod
    def _postgres_scheme(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
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
        return SecretStr(check_token(value.get_secret_value())) if value is not None else None

    @field_validator("upstream_headers")
    @classmethod
    def _headers(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_headers(value.get_secret_value())
        return value

    @field_validator("upstream_auth_header")
    @classmethod
    def _header(cls, value: str) -> str:
        return check_header_name(value)

    @field_validator("upstream_user", "upstream_password", "upstream_oauth2_client_id", "upstream_oauth2_client_secret")
    @classmethod
    def _secret(cls, value: SecretStr | None) -> SecretStr | None:
        return SecretStr(check_secret(value.get_secret_value())) if value is not None else None

    @field_validator("upstream_user")
    @classmethod
    def _user(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and ":" in value.get_secret_value():
            raise ValueError("contains a colon, which ends the user name in HTTP Basic")
        return value

    @field_validator("upstream_oauth2_url")
    @classmethod
    def _token_url(cls, value: str | None) -> str | None:
        if value is not None:
            _require_scheme(value, ("https", "http"), "https://login.example/oauth2/token")
            if not urlsplit(value).hostname or "@" in value or "#" in value:
                raise ValueError("must name a host, without a user, such as https://login.example/oauth2/token")
        return value

    @field_validator("upstream_status")
    @classmethod
    def _statuses(cls, value: str | None) -> str | None:
        parse_status_overrides(value or "")
        return value

    @field_validator("transform")
    @classmethod
    def _function(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(_FUNCTION, value):
            raise ValueError("must name a function, such as package.module:function")
        return value

    @field_validator("loop_block_warning")
    @classmethod
    def _no_tiny_block(cls, value: float) -> float:
        if 0 < value < _SHORTEST_BLOCK:
            raise ValueError(f"must be at least {_SHORTEST_BLOCK}, or 0 for no warning")
        return value

    @field_validator("upstream_url")
    @classmethod
    def _upstream_template(cls, value: str) -> str:
        _require_template(value, PLACEHOLDER, "https://shop.example/orders/{order_id}")
        return value

    @field_validator("upstream_bulk_url")
    @classmethod
    def _upstream_bulk_template(cls, value: str) -> str:
        example = "https://shop.example/orders?ids={order_ids}"
        if value and BULK_PLACEHOLDER not in value:
            raise ValueError(f"must contain {{order_ids}} exactly once, such as {example}")
        if value:
            _require_template(value, BULK_PLACEHOLDER, example)
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
        """Place the secret files named by `INGEST_…_FILE` after the source that names them: the environment, then `.env`."""
        del file_secret_settings
        variables = dotenv_settings.env_vars if isinstance(dotenv_settings, DotEnvSettingsSource) else {}
        in_environment = _NamedFiles(settings_cls, os.environ, "")
        in_dot_env = _NamedFiles(settings_cls, variables, f"{_DOT_ENV}: ")
        return init_settings, env_settings, in_environment, dotenv_settings, in_dot_env

    def file_of(self, name: str) -> Path | None:
        """Return the file that the value of a setting was read from, if it was."""
        return self._files.get(name)

    def remember_files(self, overrides: Iterable[str]) -> None:
        """Remember which values come from files: a worker reads some of them again when they change."""
        self._files.update(_files_of(type(self).model_fields.keys() - set(overrides)))


class _NamedFiles(PydanticBaseSettingsSource):
    """Reads `INGEST_X` from the file that `INGEST_X_FILE` names.

    Args:
        variables: the variables that may contain these names.
        where: prefix of error messages.
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
            raise ConfigError(f"{self._where}both {name} and {name}_FILE are set: remove one of them")
        if field_name in self.current_state:
            return None, field_name, False  # set by a source with precedence
        try:
            return Path(path).read_text(encoding="utf-8").strip(), field_name, False
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError(f"{self._where}{name}_FILE: cannot read {path}: {reason}") from error

    def __call__(self) -> dict[str, Any]:
        values = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in values.items() if value is not None}


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; an override of None is ignored.

    Raises:
        ConfigError: a setting is invalid; the message names it and the problem, and contains no secret.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        settings = _with_passwords(Settings(**given))
        settings.remember_files(given)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(problem) for problem in error.errors())) from None
    except UnicodeDecodeError as error:
        raise ConfigError(".env is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f".env cannot be read: {error.strerror}") from error
    _require_placeholder(settings)
    return settings


def _require_placeholder(settings: Settings) -> None:
    if PLACEHOLDER not in settings.upstream_url and PLACEHOLDER not in (settings.upstream_body or ""):
        raise ConfigError(
            f"{PREFIX}UPSTREAM_URL: must contain {PLACEHOLDER} exactly once, such as https://shop.example/orders/{PLACEHOLDER} "
            f"(got {mask_url(settings.upstream_url)!r})"
        )


def _with_passwords(settings: Settings) -> Settings:
    """Insert passwords that were given separately, such as mounted secrets, into their URLs."""
    urls = {}
    for url_name, name in (("redis_url", "redis_password"), ("postgres_dsn", "postgres_password")):
        password: SecretStr | None = getattr(settings, name)
        if password is None:
            continue
        parts = urlsplit(getattr(settings, url_name).get_secret_value())
        if parts.password:
            raise ConfigError(
                f"{PREFIX}{name.upper()} is set, and {PREFIX}{url_name.upper()} contains a password: remove one of them"
            )
        user, _, host = parts.netloc.rpartition("@")
        account = f"{user.removesuffix(':')}:{quote(password.get_secret_value(), safe='')}"
        urls[url_name] = SecretStr(urlunsplit(parts._replace(netloc=f"{account}@{host}")))
    return settings.model_copy(update=urls)


def unknown_settings(environ: Iterable[str], in_dot_env: Iterable[str] = ()) -> list[str]:
    """Return one line for each unknown `INGEST_` variable, most likely a typing mistake.

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
        yield f"{where}{PREFIX}{name}: unknown setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")


def _files_of(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The settings among `names` that come from a file, by the same precedence as their values."""
    sources = [{name.upper(): value for name, value in variables.items()} for variables in (os.environ, _dot_env())]
    for name in names:
        variable = f"{PREFIX}{name.upper()}"
        for source in sources:
            if variable in source or f"{variable}_FILE" in source:
                if path := source.get(f"{variable}_FILE"):
                    yield name, Path(path)
                break


def _dot_env() -> Mapping[str, str | None]:
    path = Path(_DOT_ENV)
    return dotenv_values(path, encoding="utf-8") if path.is_file() else {}


def names_in_dot_env() -> list[str]:
    """Return the variables that `.env` sets; none if it is missing, or is not a regular file (such as a pipe)."""
    path = Path(_DOT_ENV)
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return [binding.key for binding in parse_stream(file) if binding.key is not None]


def effective(settings: Settings) -> dict[str, Any]:
    """Return all values by variable name, with passwords and tokens masked."""
    values: dict[str, Any] = {}
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value() if name.endswith(_URLS) else MASK
        if name.endswith(_URLS) and value is not None:
            value = mask_url(value)
        values[PREFIX + name.upper()] = value
    return values


def _refuse_many_redis(url: str) -> None:
    scheme = url.partition("://")[0].lower()
    if "sentinel" in scheme:
        raise ValueError(
            "Sentinel URLs are not supported yet: write redis://host:6379/0 with a host that always leads to the primary, also "
            "after a failover (a proxy that asks Sentinel, a virtual IP, a Kubernetes service)"
        )
    if "cluster" in scheme:
        raise ValueError(
            "Redis Cluster URLs are not supported yet: write redis://host:6379/0 of a Redis without cluster mode"
        )


def _require_scheme(url: str, schemes: tuple[str, ...], example: str, *, several_hosts: bool = False) -> None:
    expected = f"must start with {' or '.join(scheme + '://' for scheme in schemes)}, such as {example}"
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        for host in hosts.split(",") if several_hosts else [hosts]:
            _ = urlsplit(f"//{host}").port  # parsed, and raises, on access only
    except ValueError:
        raise ValueError(f"is not a URL, or its port is not a number: {expected}") from None
    if parts.scheme not in schemes:
        raise ValueError(expected)


def _require_template(url: str, placeholder: str, example: str) -> None:
    _require_scheme(url, ("http", "https"), example)
    if url.count(placeholder) > 1:
        raise ValueError(f"must contain {placeholder} exactly once, such as {example}")
    parts = urlsplit(url)
    if not parts.hostname or "{" in parts.netloc or placeholder in parts.fragment:
        raise ValueError(f"must name a host, with {placeholder} in the path or the query")


def _require_known_options(url: str) -> None:
    # Imported only when needed, as it is slow: `ingest health` runs every few seconds.
    from redis.asyncio import ConnectionPool  # noqa: PLC0415

    try:
        # Creating a connection object is the only check available.
        pool = ConnectionPool.from_url(url)
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError):
        raise ValueError("contains an option that is unknown to the Redis client, or has an invalid value") from None


def _require_encoded_password(url: str) -> None:
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError("contains / ? or # in its password: write %2F %3F %23 instead")


def _explain(problem: Any) -> str:
    name = PREFIX + str(problem["loc"][0]).upper()
    message = problem["msg"].removeprefix("Value error, ")
    given = _showable(name, problem["input"])
    return f"{name}: {message[0].lower()}{message[1:]}" + ("" if given is None else f" (got {given!r})")


def _showable(name: str, given: object) -> object:
    """Return an invalid value if it may be shown, else None."""
    field = Settings.model_fields.get(name.removeprefix(PREFIX).lower())
    if field is None or "SecretStr" in str(field.annotation):
        return None
    if not (name.lower().endswith(_URLS) and isinstance(given, str)):
        return given
    try:
        _require_scheme(given, ("http", "https"), "")
    except ValueError:
        return None  # without its parts, a key may be anywhere in it
    return mask_url(given)
