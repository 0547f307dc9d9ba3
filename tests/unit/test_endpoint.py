"""The external API as the settings describe it: which settings belong together, and how a mistake is reported."""

from pathlib import Path
from typing import Any

import pytest

from ingest.domain.errors import ConfigError
from ingest.settings import load_settings
from ingest.sources.endpoint import endpoint_of
from ingest.sources.from_settings import check_files, source_of
from ingest.upstream.access.endpoint import fixed_headers

pytestmark = pytest.mark.usefixtures("home")

SECRET = "s3cr3t-Pa55"
OAUTH2 = {
    "AUTH": "oauth2",
    "OAUTH2_URL": "https://login.example/token",
    "OAUTH2_CLIENT_ID": "shop",
    "OAUTH2_CLIENT_SECRET": SECRET,
}

REFRESH = {**OAUTH2, "OAUTH2_GRANT": "refresh_token", "OAUTH2_REFRESH_TOKEN": "r0"}


def given(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"INGEST_UPSTREAM_{name}", value)


def headers(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, str]:
    given(monkeypatch, **variables)
    endpoint = endpoint_of(load_settings(), {})
    values = {role: secret.value for role, secret in endpoint.access.secrets.items()}
    return dict(fixed_headers(endpoint, values))


USUAL = {"Accept": "application/json", "User-Agent": "order-ingest"}


@pytest.mark.parametrize(
    ("variables", "more"),
    [
        ({}, {}),
        ({"TOKEN": "t1"}, {"Authorization": "Bearer t1"}),
        ({"TOKEN": "t1", "AUTH": "BEARER"}, {"Authorization": "Bearer t1"}),
        ({"TOKEN": "t1", "AUTH": "header"}, {"X-Api-Key": "t1"}),
        ({"TOKEN": "t1", "AUTH": "header", "AUTH_HEADER": "X-Shop-Token"}, {"X-Shop-Token": "t1"}),
        ({"USER": "me", "PASSWORD": "pä", "AUTH": "basic"}, {"Authorization": "Basic bWU6cMOk"}),
        ({"HEADERS": "X-A: 1"}, {"X-A": "1"}),
        (OAUTH2, {}),
        ({"METHOD": "post", "BODY": "{order_id}"}, {"Content-Type": "application/json"}),
    ],
)
def test_the_settings_say_which_headers_are_sent(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], more: dict[str, str]
) -> None:
    assert headers(monkeypatch, **variables) == {**USUAL, **more}


def test_a_post_may_have_the_id_in_its_body_only(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, URL="https://shop.example/graphql", METHOD="POST", BODY='{"id":"{order_id}"}')

    endpoint = endpoint_of(load_settings(), {})

    assert (endpoint.url, endpoint.method, endpoint.body) == (
        "https://shop.example/graphql",
        "POST",
        '{"id":"{order_id}"}',
    )


def test_an_oauth2_token_is_requested_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    given(
        monkeypatch,
        **OAUTH2,
        OAUTH2_SCOPE="orders",
        OAUTH2_PARAMETERS="audience=https://a.example/&x=",
        OAUTH2_CLIENT_AUTH="body",
    )

    access = endpoint_of(load_settings(), {"https_proxy": "http://p", "no_proxy": "127.0.0.1"}).access

    assert access.oauth2 is not None
    assert access.secrets["parameters"].value == "audience=https://a.example/&x="
    assert (access.oauth2.scope, access.oauth2.client_auth, access.oauth2.proxy) == ("orders", "body", "http://p")


def test_a_file_of_headers_that_is_empty_at_the_start_is_watched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "headers").touch()
    given(monkeypatch, HEADERS_FILE=str(tmp_path / "headers"))

    assert endpoint_of(load_settings(), {}).access.secrets["headers"].file == tmp_path / "headers"


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in OAUTH2.items() if key != name}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"AUTH": "bearer"}, "UPSTREAM_TOKEN is missing: INGEST_UPSTREAM_AUTH=bearer needs it"),
        ({"AUTH": "basic", "USER": "me"}, "UPSTREAM_PASSWORD is missing"),
        ({"AUTH": "header"}, "UPSTREAM_TOKEN is missing"),
        (without("OAUTH2_URL"), "UPSTREAM_OAUTH2_URL is missing"),
        (without("OAUTH2_CLIENT_SECRET"), "UPSTREAM_OAUTH2_CLIENT_SECRET is missing"),
        ({**OAUTH2, "OAUTH2_GRANT": "refresh_token"}, "UPSTREAM_OAUTH2_REFRESH_TOKEN is missing"),
        ({**OAUTH2, "OAUTH2_REFRESH_TOKEN": SECRET}, "REFRESH_TOKEN has no effect: set INGEST_UPSTREAM_OAUTH2_GRANT"),
        (
            {**REFRESH, "OAUTH2_REFRESH_STORE": "postgresql"},
            "OAUTH2_STORE_KEY_FILE is missing: INGEST_UPSTREAM_OAUTH2_REFRESH_STORE=postgresql needs a key",
        ),
        ({**REFRESH, "OAUTH2_STORE_KEY": SECRET}, "OAUTH2_STORE_KEY has no effect: set INGEST_UPSTREAM_OAUTH2_REFRESH"),
        (
            {**REFRESH, "OAUTH2_REFRESH_STORE": "tokens", "OAUTH2_STORE_KEY": SECRET},
            "OAUTH2_STORE_KEY: a key is not 32 bytes in base64",
        ),
        ({**OAUTH2, "OAUTH2_REFRESH_STORE": "tokens"}, "REFRESH_STORE has no effect: set INGEST_UPSTREAM_OAUTH2_GRANT"),
        ({"TOKEN": "t", "AUTH_HEADER": "X-Key"}, "UPSTREAM_AUTH_HEADER has no effect: set INGEST_UPSTREAM_AUTH=header"),
        ({**OAUTH2, "AUTH_HEADER": "X-Key", "HEADERS": "x-key: 1"}, "UPSTREAM_HEADERS: x-key is set by"),
        ({"PASSWORD": SECRET}, "UPSTREAM_PASSWORD has no effect: set INGEST_UPSTREAM_AUTH=basic, or remove it"),
        ({**OAUTH2, "TOKEN": SECRET}, "UPSTREAM_TOKEN has no effect"),
        (without("AUTH"), "UPSTREAM_OAUTH2_URL has no effect: set INGEST_UPSTREAM_AUTH=oauth2"),
        ({"TOKEN": SECRET, "HEADERS": f"authorization: {SECRET}"}, "UPSTREAM_HEADERS: authorization is set by"),
        ({**OAUTH2, "HEADERS": f"Authorization: {SECRET}"}, "UPSTREAM_HEADERS: authorization is set by"),
        ({"TOKEN": SECRET, "AUTH": "header", "HEADERS": "x-api-key: 1"}, "UPSTREAM_HEADERS: x-api-key is set by"),
        ({"URL": f"https://u:{SECRET}@x/{{order_id}}", "TOKEN": "t"}, "UPSTREAM_URL: contains a user"),
        ({"BODY": "{order_id}"}, "UPSTREAM_BODY has no effect: set INGEST_UPSTREAM_METHOD=POST, or remove it"),
        (
            {"BODY": "{order_id}", "METHOD": "POST", "BULK_URL": "https://x/?ids={order_ids}"},
            "UPSTREAM_BODY contains {order_id}, and a bulk request has its IDs in INGEST_UPSTREAM_BULK_URL",
        ),
        ({"CA_FILE": "ca.pem"}, "UPSTREAM_CA_FILE is set, but INGEST_UPSTREAM_URL does not start with https://"),
        ({"KEY_FILE": "key.pem"}, "UPSTREAM_KEY_FILE is set without INGEST_UPSTREAM_CERT_FILE"),
        ({"URL": "https://x/{order_id}", "CA_FILE": "no.pem"}, "UPSTREAM_CA_FILE: cannot read no.pem: No such file"),
    ],
)
def test_settings_that_do_not_fit_together_are_told_in_one_line_without_a_secret(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    given(monkeypatch, **variables)

    with pytest.raises(ConfigError) as error:
        check_files(source_of(load_settings(), {}))

    assert str(error.value).startswith("INGEST_UPSTREAM_")
    assert message in str(error.value)
    assert SECRET not in str(error.value)
    assert "\n" not in str(error.value)


def test_no_secret_is_in_a_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, **OAUTH2, HEADERS=f"X-Key: {SECRET}")

    endpoint = endpoint_of(load_settings(), {})

    assert SECRET not in repr(endpoint)


@pytest.mark.parametrize(
    ("environment", "dot_env", "overrides", "found"),
    [
        ({"INGEST_UPSTREAM_TOKEN_FILE": "a"}, "", {}, "a"),
        ({"ingest_upstream_token_file": "a"}, "INGEST_UPSTREAM_TOKEN=x", {}, "a"),
        ({}, "INGEST_UPSTREAM_TOKEN_FILE=b", {}, "b"),
        ({"INGEST_UPSTREAM_TOKEN_FILE": "a"}, "INGEST_UPSTREAM_TOKEN_FILE=b", {}, "a"),
        ({"INGEST_UPSTREAM_TOKEN": "x"}, "INGEST_UPSTREAM_TOKEN_FILE=b", {}, None),
        ({"INGEST_UPSTREAM_TOKEN_FILE": "a"}, "", {"upstream_token": "x"}, None),
        ({"INGEST_UPSTREAM_TOKEN": "x"}, "", {}, None),
    ],
)
def test_the_file_of_a_secret_is_known_where_its_value_came_from_it(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    dot_env: str,
    overrides: dict[str, Any],
    found: str | None,
) -> None:
    for name in ("a", "b"):
        (home / name).write_text(f"from-{name}")
    (home / ".env").write_text(dot_env)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    token = endpoint_of(load_settings(**overrides), {}).access.secrets["token"]

    assert token.file == (None if found is None else Path(found))
    assert token.value == ("x" if found is None else f"from-{found}")
