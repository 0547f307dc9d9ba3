"""The sources of settings, their precedence, and the errors."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from ingest.domain.errors import ConfigError
from ingest.mapping.load import load_mapping
from ingest.settings import Settings, effective, load_settings, names_in_dot_env, unknown_settings
from ingest.settings.origins import settings_of_process
from ingest.settings.source_file import source_names

pytestmark = pytest.mark.usefixtures("home")

SECRET = "s3cr3t-Pa55"


def refusal() -> str:
    with pytest.raises(ConfigError) as refused:
        load_settings()
    message = str(refused.value)
    assert "\n" not in message
    assert refused.value.exit_code == 2
    return message


def test_without_any_setting_the_defaults_apply() -> None:
    settings = load_settings()

    assert (settings.stream, settings.group, settings.log_format, settings.log_level) == (
        "orders",
        "ingest",
        "console",
        "info",
    )
    assert settings.upstream_token is None


def test_the_command_line_precedes_the_environment_precedes_files_precedes_dot_env(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("batch_rows", "concurrency", "processes", "max_attempts")
    (home / ".env").write_text("".join(f"INGEST_{name.upper()}=11\n" for name in names))
    (home / "value").write_text("12\n")
    monkeypatch.setenv("INGEST_CONCURRENCY_FILE", str(home / "value"))
    monkeypatch.setenv("INGEST_PROCESSES", "13")
    monkeypatch.setenv("INGEST_MAX_ATTEMPTS", "13")

    settings = load_settings(max_attempts=14)

    assert [getattr(settings, name) for name in names] == [11, 12, 13, 14]


def test_an_override_of_none_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_PROCESSES", "3")

    assert load_settings(processes=None).processes == 3


@pytest.mark.parametrize("variable", ["INGEST_LOG_FORMAT", "ingest_log_format"])
def test_names_and_choices_are_case_insensitive(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "JSON")

    assert load_settings().log_format == "json"


MISTAKES = [
    ("INGEST_REDIS_URL", f"http://:{SECRET}@host", "redis://"),
    ("INGEST_REDIS_URL", f"{SECRET}", "redis://"),
    ("INGEST_REDIS_URL", "", "redis://"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@host:port/0", "redis://"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}/x@host", "redis://"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@[::1/0", "redis://"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@host/0?db=abc", "INGEST_REDIS_URL"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@host/0?no_such_option=1", "INGEST_REDIS_URL"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@host/0?retry=3", "invalid value"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@host/0?socket_timeout=0", "socket_timeout that is not greater than 0"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@host/0?socket_connect_timeout=nan", "not greater than 0"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@host/0?ssl_cert_reqs=always", "invalid value"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@host/0?ssl_min_version=1", "invalid value"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@host/0?ssl_ciphers=none", "invalid value"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@host/0?ssl_ca_data=none", "invalid value"),
    ("INGEST_REDIS_URL", f"redis+sentinel://:{SECRET}@h1:26379,h2:26379,h3", "name of the service"),
    ("INGEST_REDIS_URL", f"redis+sentinel://:{SECRET}@h1,h2:port/orders/0", "redis+sentinel://"),
    ("INGEST_REDIS_URL", f"redis+sentinel://:{SECRET}/x@h1,h2/orders/0", "INGEST_REDIS_URL"),
    ("INGEST_REDIS_URL", f"redis+sentinel://:{SECRET}@h1/orders/x", "database"),
    ("INGEST_REDIS_URL", f"redis+sentinel://:{SECRET}@h1/orders/0?no_such=1", "unknown to the Redis client"),
    ("INGEST_REDIS_URL", f"redis+sentinel://:{SECRET}@h1/orders/0?nat=a", "nat=REPORTED"),
    ("INGEST_REDIS_URL", f"rediss+sentinel://:{SECRET}@h1/orders/0?ssl_ca_certs=/no/such", "cannot be read: /no/such"),
    ("INGEST_REDIS_URL", f"redis+cluster://:{SECRET}@h1:6379,h2:6379/1", "only database 0"),
    ("INGEST_REDIS_URL", f"redis+cluster://:{SECRET}@h1:6379,", "hosts of nodes"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@host/abc", "database"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@host/1/2", "database"),
    ("INGEST_REDIS_URL", f"unix://:{SECRET}@/run/redis.sock?db=-1", "database"),
    ("INGEST_POSTGRES_DSN", f"mysql://root:{SECRET}@host/db", "postgresql://"),
    ("INGEST_POSTGRES_DSN", f"host=h password={SECRET}", "postgresql://"),
    ("INGEST_POSTGRES_DSN", f"postgresql://u:{SECRET}@host:port/db", "postgresql://"),
    ("INGEST_POSTGRES_DSN", f"postgresql://u:{SECRET}@h1:5432,h2:port/db", "postgresql://"),
    ("INGEST_REDIS_URL", f"redis://:{SECRET}@h1:6379,h2:6379/0", "redis://"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@h/0?ssl_ca_certs=/no/such", "ssl_ca_certs that cannot be read: /no/such"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@h/0?ssl_certfile=/no/such", "ssl_certfile that cannot be read"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@h/0?ssl_keyfile=/no/such", "ssl_keyfile that cannot be read"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@h/0?ssl_certfile={__file__}", "not a certificate and its key"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@h/0?ssl_keyfile={__file__}", "no certificate in ssl_certfile"),
    ("INGEST_POSTGRES_DSN", f"postgresql://u:{SECRET}@h/db?sslrootcert=/no/such", "sslrootcert that cannot be read"),
    ("INGEST_POSTGRES_DSN", f"postgresql://u:{SECRET}@h1,h2/db?sslcert=/no/such", "sslcert that cannot be read"),
    ("INGEST_OUTBOX_DSN", f"postgresql://u:{SECRET}@h/db?sslkey=/no/such", "sslkey that cannot be read"),
    ("INGEST_REDIS_URL", f"rediss://:{SECRET}@h/0?ssl_ca_certs={__file__}", "ssl_ca_certs without certificates"),
    (
        "INGEST_POSTGRES_DSN",
        f"postgresql://u:{SECRET}@h/db?sslrootcert={__file__}",
        "sslrootcert without certificates",
    ),
    (
        "INGEST_POSTGRES_DSN",
        f"postgresql://u:{SECRET}@h/db?sslcert={__file__}&sslkey={__file__}&sslpassword={SECRET}",
        "sslcert and a sslkey that are not a certificate and its key",
    ),
    ("INGEST_UPSTREAM_URL", "https://shop.example/orders", "{order_id}"),
    ("INGEST_UPSTREAM_URL", "https://shop.example/{order_id}/{order_id}", "once"),
    ("INGEST_UPSTREAM_URL", "https://{order_id}.shop.example/", "host"),
    ("INGEST_UPSTREAM_URL", f"https://{SECRET}@gro\u00dfhandel.example/{{order_id}}", "its ASCII form"),
    ("INGEST_UPSTREAM_URL", "https:///{order_id}", "host"),
    ("INGEST_UPSTREAM_URL", "https://shop.example/#{order_id}", "path"),
    ("INGEST_UPSTREAM_URL", "ftp://shop.example/{order_id}", "http://"),
    ("INGEST_UPSTREAM_BULK_URL", "https://shop.example/orders?ids={order_id}", "{order_ids}"),
    ("INGEST_UPSTREAM_BULK_URL", "https://shop.example/{order_ids}/{order_ids}", "once"),
    ("INGEST_UPSTREAM_BULK_URL", "https://shop.example/{order_id}?ids={order_ids}", "no {order_id}"),
    ("INGEST_UPSTREAM_BULK_URL", "https://{order_ids}.shop.example/", "host"),
    ("INGEST_UPSTREAM_BULK_URL", f"https://shop.example/orders?api_key={SECRET}", "{order_ids}"),
    ("INGEST_UPSTREAM_BULK_SIZE", "0", "greater than 0"),
    ("INGEST_UPSTREAM_BULK_SIZE", "1001", "1000"),
    ("INGEST_UPSTREAM_BULK_PATH", "data..orders", "match"),
    ("INGEST_UPSTREAM_BULK_PATH", "data\\orders", "match"),
    ("INGEST_UPSTREAM_BULK_ID", "", "match"),
    ("INGEST_UPSTREAM_BULK_ID", 'order."number"', "match"),
    ("INGEST_UPSTREAM_URL", f"ftp://{SECRET}@shop.example/{{order_id}}", "http://"),
    ("INGEST_UPSTREAM_URL", f"https://shop.example/orders?api_key={SECRET}", "{order_id}"),
    ("INGEST_UPSTREAM_URL", f"https://shop.example/orders?{SECRET}", "{order_id}"),
    ("INGEST_UPSTREAM_URL", f"https://{SECRET}@shop.example/orders", "{order_id}"),
    ("INGEST_UPSTREAM_URL", f"https://me:1/{SECRET}@shop.example/orders", "{order_id}"),
    ("INGEST_UPSTREAM_URL", f"https://me:x/{SECRET}@shop.example/orders", "http"),
    ("INGEST_UPSTREAM_URL", f"https://shop.example:{SECRET}/{{order_id}}", "http"),
    ("INGEST_UPSTREAM_URL", SECRET, "http"),
    ("INGEST_UPSTREAM_TOKEN", f"{SECRET}\nHost: evil", "INGEST_UPSTREAM_TOKEN"),
    ("INGEST_UPSTREAM_METHOD", "PUT", "'GET' or 'POST'"),
    ("INGEST_UPSTREAM_AUTH", "digest", "'oauth2'"),
    ("INGEST_UPSTREAM_HEADERS", SECRET, "line 1: must be `Name: value`"),
    ("INGEST_UPSTREAM_HEADERS", f"X-A: 1\nX-B: {SECRET}\x01", "line 2: must be printable ASCII"),
    ("INGEST_UPSTREAM_HEADERS", f"X-A: 1\nx-a: {SECRET}", "line 2: x-a is given twice"),
    ("INGEST_UPSTREAM_HEADERS", f"Host: {SECRET}", "line 1: Host is set by the HTTP client"),
    ("INGEST_UPSTREAM_HEADERS", f'{{"X-A": {{"{SECRET}": 1}}}}', "is not a JSON object of strings"),
    ("INGEST_UPSTREAM_HEADERS", f'{{"X-A": "{SECRET}"', "is not a JSON object of strings"),
    ("INGEST_UPSTREAM_AUTH_HEADER", "X Key", "must be the name of a header"),
    ("INGEST_UPSTREAM_USER", " ", "is empty"),
    ("INGEST_UPSTREAM_USER", f"me:{SECRET}", "contains a colon"),
    ("INGEST_UPSTREAM_OAUTH2_URL", f"https://{SECRET}@login.example/token", "and no user"),
    ("INGEST_UPSTREAM_OAUTH2_URL", "https:///token", "must contain a host"),
    ("INGEST_UPSTREAM_OAUTH2_URL", "https://GRO\u1e9eHANDEL.example/token", "its ASCII form"),
    ("INGEST_UPSTREAM_PASSWORD", f"{SECRET}\x07", "contains control characters"),
    ("INGEST_UPSTREAM_OAUTH2_URL", f"ftp://{SECRET}@login.example/token", "https://"),
    ("INGEST_UPSTREAM_OAUTH2_CLIENT_AUTH", "jwt", "'body'"),
    ("INGEST_UPSTREAM_STATUS", "404=later", "'later' is not one of retry"),
    ("INGEST_UPSTREAM_STATUS", "200=retry", "a status from 400 to 599"),
    ("INGEST_UPSTREAM_STATUS", "404=rejected:1h", "only retry and throttled support a time"),
    ("INGEST_UPSTREAM_STATUS", "404=retry, 404=rejected", "404 has two rules"),
    ("INGEST_UPSTREAM_STATUS", "404=retry:31d", "at most 30 days"),
    ("INGEST_STREAM", "orders{1}", "orders{1}"),
    ("INGEST_STREAM", "", "INGEST_STREAM"),
    ("INGEST_GROUP", "a" * 65, "INGEST_GROUP"),
    ("INGEST_PROCESSES", "0", "greater than 0"),
    ("INGEST_PROCESSES", "257", "256"),
    ("INGEST_PROCESSES", "two", "'two'"),
    ("INGEST_CONCURRENCY", "1.5", "integer"),
    ("INGEST_CONCURRENCY", "10001", "10000"),
    ("INGEST_UPSTREAM_TIMEOUT", "0", "greater than 0"),
    ("INGEST_UPSTREAM_TIMEOUT", "nan", "INGEST_UPSTREAM_TIMEOUT"),
    ("INGEST_UPSTREAM_TIMEOUT", "inf", "finite"),
    ("INGEST_UPSTREAM_TIMEOUT", "1e10", "1000000000"),
    ("INGEST_SHUTDOWN_GRACE", "1e10", "1000000000"),
    ("INGEST_LOOP_BLOCK_WARNING", "1e10", "1000000000"),
    ("INGEST_STUCK_AFTER", "1e10", "1000000000"),
    ("INGEST_HEARTBEAT_TTL", "1e10", "1000000000"),
    ("INGEST_CLAIM_IDLE", "1e10", "1000000000"),
    ("INGEST_CLAIM_IDLE", "0.5", "greater than or equal to 1"),
    ("INGEST_BATCH_ROWS", "5001", "5000"),
    ("INGEST_BACKLOG_LIMIT", "-1", "greater than or equal to 0"),
    ("INGEST_TRANSFORM", "shop.transform", "package.module:function"),
    ("INGEST_TRANSFORM", "shop:transform()", "package.module:function"),
    ("INGEST_TRANSFORM_PROCESSES", "65", "64"),
    ("INGEST_TRANSFORM_TIMEOUT", "0", "greater than 0"),
    ("INGEST_TRANSFORM_MEMORY", str(2**64), "less than or equal to"),
    ("INGEST_METRICS_HOST", "", "is empty"),
    ("INGEST_METRICS_PORT", "65536", "65535"),
    ("INGEST_LOG_FORMAT", "xml", "'json'"),
    ("INGEST_LOG_LEVEL", "loud", "'debug'"),
]


@pytest.mark.parametrize(("name", "value", "told"), MISTAKES)
def test_an_invalid_value_is_reported_in_one_line_that_names_the_setting_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(name, value)

    message = refusal()

    assert message.startswith(f"{name}: ")
    assert told in message
    assert SECRET not in message


def test_an_invalid_url_is_shown_without_possible_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_UPSTREAM_URL", f"https://{SECRET}@shop.example/orders?api_key={SECRET}&v=2")

    assert refusal().endswith("(got 'https://***@shop.example/orders?api_key=***&v=***')")


@pytest.mark.parametrize(
    "url", ["redis://h", "redis://h/", "redis://h/15", "rediss://h/0?db=3", "unix:///run/redis.sock?db=2"]
)
def test_a_redis_url_may_name_a_database_by_its_number(url: str) -> None:
    assert load_settings(redis_url=url).redis_url.get_secret_value() == url


def test_all_invalid_values_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_PROCESSES", "none")
    monkeypatch.setenv("INGEST_LOG_LEVEL", "loud")

    message = refusal()

    assert "INGEST_PROCESSES" in message
    assert "INGEST_LOG_LEVEL" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [("AUTH", f"Bearer {SECRET}"), ("AUTH_HEADER", f"X-Key: {SECRET}"), ("OAUTH2_CLIENT_AUTH", f"shop:{SECRET}")],
)
def test_a_credential_in_the_setting_beside_its_own_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"INGEST_UPSTREAM_{name}", value)

    with pytest.raises(ConfigError, match=f"INGEST_UPSTREAM_{name}: ") as error:
        load_settings()

    assert SECRET.lower() not in str(error.value).lower()


def test_a_secret_is_read_from_the_output_of_a_command_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, f"{SECRET}\n".encode())
    os.close(writer)
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN_FILE", f"/dev/fd/{reader}")

    settings = load_settings()
    os.close(reader)

    assert settings.upstream_token is not None
    assert settings.upstream_token.get_secret_value() == SECRET
    assert settings.file_of("upstream_token") is None


def test_a_device_and_a_large_file_are_no_files_of_a_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "large").write_bytes(b"x" * 100_000)

    for name, problem in (
        ("/dev/zero", "cannot read /dev/zero: Not a regular file"),
        ("large", "large is larger than"),
    ):
        monkeypatch.setenv("INGEST_UPSTREAM_TOKEN_FILE", name)
        with pytest.raises(ConfigError, match=f"INGEST_UPSTREAM_TOKEN_FILE: {problem}"):
            load_settings()


def test_a_separate_password_is_inserted_into_its_url(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "password").write_text("p@ss/w%rd\n")
    monkeypatch.setenv("INGEST_REDIS_URL", "redis://ingest@redis:6379/0")
    monkeypatch.setenv("INGEST_REDIS_PASSWORD_FILE", str(home / "password"))
    monkeypatch.setenv("INGEST_POSTGRES_DSN", "postgresql://writer@db:5432/shop?sslmode=require")
    monkeypatch.setenv("INGEST_POSTGRES_PASSWORD", "geheim")

    settings = load_settings()

    assert settings.redis_url.get_secret_value() == "redis://ingest:p%40ss%2Fw%25rd@redis:6379/0"
    assert settings.postgres_dsn.get_secret_value() == "postgresql://writer:geheim@db:5432/shop?sslmode=require"
    assert effective(settings)["INGEST_REDIS_PASSWORD"] == "***"


def test_a_password_needs_no_user() -> None:
    settings = load_settings(redis_url="redis://redis:6379/0", redis_password=SecretStr("pw"))

    assert settings.redis_url.get_secret_value() == "redis://:pw@redis:6379/0"


def test_passwords_of_redis_and_of_sentinels_are_inserted_into_one_url_and_masked() -> None:
    settings = load_settings(
        redis_url="redis+sentinel://ingest@h1,h2/orders/0?sentinel_username=reader",
        redis_password=SecretStr("pw"),
        redis_sentinel_password=SecretStr("p&w"),
    )

    assert settings.redis_url.get_secret_value() == (
        "redis+sentinel://ingest:pw@h1,h2/orders/0?sentinel_username=reader&sentinel_password=p%26w"
    )
    assert effective(settings)["INGEST_REDIS_URL"] == (
        "redis+sentinel://ingest:***@h1,h2/orders/0?sentinel_username=reader&sentinel_password=***"
    )


def test_a_password_for_sentinels_needs_their_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_REDIS_SENTINEL_PASSWORD", SECRET)

    message = refusal()

    assert "INGEST_REDIS_SENTINEL_PASSWORD is set" in message
    assert SECRET not in message


def test_two_passwords_for_one_server_are_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_REDIS_URL", f"redis://ingest:{SECRET}@redis:6379/0")
    monkeypatch.setenv("INGEST_REDIS_PASSWORD", SECRET)

    message = refusal()

    assert "INGEST_REDIS_PASSWORD" in message
    assert "INGEST_REDIS_URL" in message
    assert SECRET not in message


def test_an_empty_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_POSTGRES_PASSWORD", "")

    assert refusal() == "INGEST_POSTGRES_PASSWORD: is empty"


def test_an_empty_setting_or_file_name_is_said_to_be_empty(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_MAPPING", "")
    setting = refusal()
    monkeypatch.delenv("INGEST_MAPPING")
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN_FILE", "")
    file_name = refusal()
    (home / "token").write_text("")
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN_FILE", str(home / "token"))
    content = refusal()

    assert setting == "INGEST_MAPPING: is empty: set a value, or remove it"
    assert file_name == "INGEST_UPSTREAM_TOKEN_FILE: is empty: name a file, or remove it"
    assert (
        content
        == "INGEST_UPSTREAM_TOKEN: is empty: it must be printable ASCII without spaces, because it is sent in a header"
    )


# Values of settings that have no default, and may not be anything.
EXAMPLES = {
    "console_proxies": "127.0.0.1, 10.0.0.0/8",
    "console_secret": 4 * SECRET,
    "otlp_endpoint": "http://collector:4318",
    "outbox_dsn": "postgresql://shop/shop",
    "poll": "300",
    "responses": '[{"status": 202, "meaning": "retry"}]',
    "transform": "package.module:function",
    "upstream_headers": "X-Key: 1",
    "upstream_oauth2_url": "https://login.example/token",
    "upstream_status": "404=retry",
}


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_may_come_from_a_file(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    default = getattr(Settings(), name)
    value = default.get_secret_value() if hasattr(default, "get_secret_value") else default
    (home / "value").write_text(str(EXAMPLES.get(name, SECRET) if value is None else value))
    monkeypatch.setenv(f"INGEST_{name.upper()}_FILE", str(home / "value"))
    if name == "redis_sentinel_password":
        monkeypatch.setenv("INGEST_REDIS_URL", "redis+sentinel://host/orders/0")

    load_settings()

    assert unknown_settings(os.environ) == []


def test_a_directory_or_a_binary_file_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN_FILE", str(home))
    folder = refusal()
    (home / "binary").write_bytes(b"\xff\xfe\x00")
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN_FILE", str(home / "binary"))
    binary = refusal()

    assert "directory" in folder
    assert "not UTF-8" in binary


def test_dot_env_is_read_and_may_contain_other_variables(home: Path) -> None:
    (home / ".env").write_text("# ours\nINGEST_STREAM=from-dot-env\nexport INGEST_GROUP='quoted'\nOTHER=1\n")

    settings = load_settings()

    assert (settings.stream, settings.group) == ("from-dot-env", "quoted")


def test_a_secret_file_may_be_named_in_dot_env(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text(f"{SECRET}\n")
    (home / "stream").write_text("from-a-file\n")
    (home / ".env").write_text(f"INGEST_UPSTREAM_TOKEN_FILE={home}/token\ningest_stream_file={home}/stream\n")

    token = load_settings().upstream_token
    (home / "stream").unlink()
    monkeypatch.setenv("INGEST_STREAM", "from-the-environment")
    settings = load_settings()

    assert token is not None
    assert token.get_secret_value() == SECRET
    assert settings.stream == "from-the-environment"


def test_a_file_named_in_the_environment_precedes_a_value_in_dot_env(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "stream").write_text("from-a-file\n")
    (home / ".env").write_text("INGEST_STREAM=from-dot-env\n")
    monkeypatch.setenv("ingest_stream_file", str(home / "stream"))

    assert load_settings().stream == "from-a-file"


def test_a_value_and_a_file_for_one_setting_are_refused(home: Path) -> None:
    (home / ".env").write_text(f"INGEST_UPSTREAM_TOKEN={SECRET}\nINGEST_UPSTREAM_TOKEN_FILE=/run/token\n")

    message = refusal()

    assert message.startswith(".env: ")
    assert "INGEST_UPSTREAM_TOKEN_FILE" in message
    assert SECRET not in message


def test_a_missing_file_named_in_dot_env_is_reported(home: Path) -> None:
    (home / ".env").write_text("INGEST_POSTGRES_DSN_FILE=/nowhere/dsn\n")

    assert refusal() == ".env: INGEST_POSTGRES_DSN_FILE: cannot read /nowhere/dsn: No such file or directory"


def test_a_file_that_others_may_change_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("token", "sources.toml", "mapping.toml"):
        (home / name).write_text("")
        (home / name).chmod(0o646)
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN_FILE", "token")
    token = refusal()
    monkeypatch.delenv("INGEST_UPSTREAM_TOKEN_FILE")
    with pytest.raises(ConfigError) as sources:
        source_names(load_settings(sources="sources.toml"))
    with pytest.raises(ConfigError) as mapping:
        load_mapping("./mapping.toml")
    (home / ".env").write_text("INGEST_STREAM=x")
    (home / ".env").chmod(0o646)
    dot_env = refusal()

    reason = "it may be changed by every user, so that it is not trusted"
    assert token == f"INGEST_UPSTREAM_TOKEN_FILE: cannot read token: {reason}"
    assert str(sources.value) == f"INGEST_SOURCES: cannot read sources.toml: {reason}"
    assert str(mapping.value) == f"INGEST_MAPPING: cannot read ./mapping.toml: {reason}"
    assert dot_env == f".env cannot be read: {reason}"


def test_a_dot_env_that_is_not_text_is_reported(home: Path) -> None:
    (home / ".env").write_bytes(b"INGEST_STREAM=\xff\xfe\n")

    assert ".env" in refusal()


def test_a_mistyped_name_in_the_environment_or_dot_env_is_reported_with_a_suggestion(home: Path) -> None:
    (home / ".env").write_text("INGEST_STREM=x\nexport INGEST_POSTGRES_DNS_FILE=y\nINGEST_GROUP_FILE=z\nOTHER=1\n")

    lines = unknown_settings(["ingest_strem", "INGEST_ZZZ", "INGEST_STREAM", "OTHER"], names_in_dot_env())

    assert lines == [
        "INGEST_STREM: unknown setting; did you mean INGEST_STREAM?",
        "INGEST_ZZZ: unknown setting",
        ".env: INGEST_POSTGRES_DNS_FILE: unknown setting; did you mean INGEST_POSTGRES_DSN_FILE?",
        ".env: INGEST_STREM: unknown setting; did you mean INGEST_STREAM?",
    ]


def test_a_missing_dot_env_sets_no_variables(home: Path) -> None:
    (home / ".env").mkdir()

    assert names_in_dot_env() == []


@pytest.mark.parametrize(
    "name",
    [
        "api_body_timeout", "api_header_timeout", "api_idle_timeout", "claim_idle", "coalesce", "heartbeat_ttl", "history", "loop_block_warning",
        "outbox_key_lifetime", "outbox_poll_interval", "poll", "results_age", "shutdown_grace", "stuck_after", "transform_timeout",
        "upstream_connect_timeout", "upstream_read_timeout", "upstream_timeout",
    ],
)  # fmt: skip
@pytest.mark.parametrize(("written", "seconds"), [("5m", 300.0), ("90", 90.0), ("90.5s", 90.5)])
def test_every_duration_takes_units_and_is_shown_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch, name: str, written: str, seconds: float
) -> None:
    monkeypatch.setenv(f"INGEST_{name.upper()}", written)

    settings = load_settings()
    [shown] = [each.value for each in settings_of_process(settings) if each.name == f"INGEST_{name.upper()}"]

    assert (getattr(settings, name), shown) == (seconds, written)


@pytest.mark.parametrize("written", ["5 minutes", "m", "nan", "inf", "-1", "1e99d"])
def test_a_text_that_is_no_duration_is_rejected(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("INGEST_POLL", written)

    assert "INGEST_POLL" in refusal()


def test_headers_and_parameters_without_secrets_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_UPSTREAM_URL", f"https://shop.example/{{order_id}}?fields=id,lines&key={SECRET}")
    monkeypatch.setenv("INGEST_UPSTREAM_HEADERS", json.dumps({"Accept": "application/json", "X-Key": SECRET}))

    values = effective(load_settings())

    assert values["INGEST_UPSTREAM_URL"] == "https://shop.example/{order_id}?fields=id,lines&key=***"
    assert json.loads(values["INGEST_UPSTREAM_HEADERS"]) == {"Accept": "application/json", "X-Key": "***"}


SEVERAL_HOSTS = "h1:5432,h2:5433,h3/db?target_session_attrs=read-write"


def test_a_dsn_may_have_several_hosts_and_shows_no_password() -> None:
    settings = load_settings(postgres_dsn=f"postgresql://u:{SECRET}@{SEVERAL_HOSTS}")

    assert effective(settings)["INGEST_POSTGRES_DSN"] == f"postgresql://u:***@{SEVERAL_HOSTS}"


def test_the_effective_values_name_every_setting_and_mask_every_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_REDIS_URL", f"redis://:{SECRET}@cache:6380/2")
    monkeypatch.setenv("INGEST_POSTGRES_DSN", f"postgresql://writer:{SECRET}@db/shop")
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN", SECRET)
    monkeypatch.setenv("INGEST_UPSTREAM_URL", f"https://me:{SECRET}@shop.example/orders/{{order_id}}?key={SECRET}")
    monkeypatch.setenv("INGEST_UPSTREAM_BODY", f'{{"id": "{{order_id}}", "key": "{SECRET}"}}')
    monkeypatch.setenv("INGEST_UPSTREAM_OAUTH2_PARAMETERS", f"client_assertion={SECRET}")

    values = effective(load_settings())

    assert values.keys() == {f"INGEST_{name.upper()}" for name in Settings.model_fields}
    assert values["INGEST_REDIS_URL"] == "redis://:***@cache:6380/2"
    assert values["INGEST_POSTGRES_DSN"] == "postgresql://writer:***@db/shop"
    assert values["INGEST_UPSTREAM_TOKEN"] == "***"
    assert values["INGEST_UPSTREAM_URL"] == "https://***@shop.example/orders/{order_id}?key=***"
    assert SECRET not in json.dumps(values)


@given(before=st.text("0123456789", max_size=4), special=st.text("/?#@:%&;=", max_size=3))
def test_no_accepted_url_shows_its_password(before: str, special: str) -> None:
    url = f"redis://user:{before}{special}{SECRET}@host:6379/0"

    try:
        shown = str(effective(load_settings(redis_url=url))["INGEST_REDIS_URL"])
    except ConfigError as refused:
        shown = str(refused)

    assert SECRET not in shown


@given(
    place=st.sampled_from(["https://{}@h/{{order_id}}", "https://u:{}@h/{{order_id}}", "http://h/{{order_id}}?k={}", "http://h/{{order_id}}#{}", "https://h/{{order_id}}?{}"]),
    before=st.text("0123456789", max_size=4),
    special=st.text("/?#@:%&;={}", max_size=3),
)  # fmt: skip
def test_no_url_of_the_external_api_shows_possible_secrets(place: str, before: str, special: str) -> None:
    url = place.format(f"{before}{special}{SECRET}")

    try:
        shown = str(effective(load_settings(upstream_url=url))["INGEST_UPSTREAM_URL"])
    except ConfigError as refused:
        shown = str(refused)

    assert SECRET not in shown


@pytest.mark.parametrize("value", [0, 0.1, 2.5])
def test_the_threshold_of_a_blocked_loop_may_be_a_tenth_of_a_second_or_more_or_zero(value: float) -> None:
    assert load_settings(loop_block_warning=value).loop_block_warning == value


@pytest.mark.parametrize("value", [-1, 0.01, "nan", "inf"])
def test_a_threshold_of_a_blocked_loop_that_is_too_short_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="INGEST_LOOP_BLOCK_WARNING"):
        load_settings(loop_block_warning=value)
