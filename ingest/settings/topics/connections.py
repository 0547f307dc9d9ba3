"""Settings of the connections to Redis and PostgreSQL, a part of `Settings`."""

import re
from urllib.parse import parse_qsl

from pydantic import Field, SecretStr, field_validator

from ingest.domain.redis_urls import cluster_url, sentinel_url
from ingest.domain.redis_urls.redis_addresses import split_hosts
from ingest.settings.types import Topic
from ingest.settings.urls import (
    require_encoded_password,
    require_files,
    require_known_options,
    require_scheme,
)


class ConnectionSettings(Topic):
    """The addresses of Redis and PostgreSQL."""

    redis_url: SecretStr = Field(
        SecretStr("redis://127.0.0.1:6379/0"),
        description="Redis or Valkey: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://",
    )
    postgres_dsn: SecretStr = Field(
        SecretStr("postgresql://127.0.0.1:5432/ingest"),
        description="PostgreSQL: postgresql://user:password@host/db, or with several hosts (host1,host2)",
    )
    redis_password: SecretStr | None = Field(None, description="Password for Redis, unless the URL contains it")
    redis_sentinel_password: SecretStr | None = Field(
        None, description="Password for the Sentinels, unless the URL contains it"
    )
    postgres_password: SecretStr | None = Field(None, description="Password for PostgreSQL, unless the DSN contains it")

    @field_validator("redis_url")
    @classmethod
    def _redis_scheme(cls, value: SecretStr) -> SecretStr:
        url = value.get_secret_value()
        if sentinel_url.is_sentinel_url(url):
            require_scheme(url, sentinel_url.SCHEMES, sentinel_url.EXAMPLE, several_hosts=True)
            require_encoded_password(url)
            url = sentinel_url.parse_sentinel_url(url).redis_url
        elif cluster_url.is_cluster_url(url):
            require_scheme(url, cluster_url.SCHEMES, cluster_url.EXAMPLE, several_hosts=True)
            require_encoded_password(url)
            url = cluster_url.parse_cluster_url(url).redis_url
        else:
            schemes = ("redis", "rediss", "unix", *sentinel_url.SCHEMES, *cluster_url.SCHEMES)
            require_scheme(url, schemes, "redis://host:6379/0")
            require_encoded_password(url)
        if split_hosts(url).query:
            require_known_options(url)
            require_files(url)
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis_database(cls, value: SecretStr) -> SecretStr:
        # The client reads a path that is not a number as database 0, and 1/2 as 12.
        parts = split_hosts(value.get_secret_value())
        path = parts.path if parts.scheme in {"redis", "rediss"} else ""
        option = next((text for name, text in parse_qsl(parts.query) if name == "db"), "0")
        if not (re.fullmatch(r"/?|/[0-9]+", path) and re.fullmatch(r"[0-9]+", option)):
            raise ValueError("must end with the number of the database, such as redis://host:6379/0")
        return value

    @field_validator("postgres_dsn", "outbox_dsn", check_fields=False)
    @classmethod
    def _postgres_scheme(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        example = "postgresql://user:password@host:5432/database"
        require_scheme(value.get_secret_value(), ("postgresql", "postgres"), example, several_hosts=True)
        require_encoded_password(value.get_secret_value())
        require_files(value.get_secret_value())
        return value

    @field_validator("redis_password", "redis_sentinel_password", "postgres_password")
    @classmethod
    def _password(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value():
            raise ValueError("is empty")
        return value
