"""Sources of a known kind, which need a few keys only."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ingest.api.webhooks.source_webhook import webhook_of
from ingest.domain.errors import ConfigError
from ingest.settings import Settings, load_settings
from ingest.settings.kinds.expansion import expand
from ingest.settings.kinds.kind_file import kind_names, load_kind
from ingest.settings.source_file import source_kinds, source_settings
from ingest.settings.source_values import TOP_KEYS
from ingest.sources.from_settings import source_of
from ingest.store.credentials import CredentialRow
from ingest.upstream.access.token_file import TokenFile

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "shop-kinds.md"
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SHOP = "[sources.shop]\nkind = 'shopify-rest'\nshop = 'example.myshopify.com'\n"
Read = Callable[[str], Settings]


@pytest.fixture
def read(home: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads the settings of the only source in a text."""
    monkeypatch.setenv("INGEST_SOURCES", "sources.toml")
    (home / "token").write_text("shpat_1234\n")

    def read(text: str) -> Settings:
        (home / "sources.toml").write_text(text)
        [settings] = source_settings(load_settings()).values()
        return settings

    return read


def test_a_kind_brings_the_url_the_credential_the_quota_and_the_mapping(read: Read) -> None:
    shop = read(SHOP + "token_file = 'token'")

    source = source_of(shop, {})
    assert shop.upstream_url == "https://example.myshopify.com/admin/api/2026-07/orders/{order_id}.json"
    assert (shop.mapping, shop.upstream_rate, shop.webhook) == ("shopify-rest", 2.0, None)
    assert source.endpoint.access.secrets["token"].value == "shpat_1234"
    assert shop.file_of("upstream_token") == Path("token")
    assert source_kinds(load_settings()) == {"shop": "shopify-rest"}


def test_the_given_keys_choose_the_form_of_the_credential(read: Read) -> None:
    shop = read(SHOP + "client_id = 'id'\nclient_secret_file = 'token'")

    assert (shop.upstream_auth, shop.upstream_oauth2_client_auth) == ("oauth2", "body")
    assert shop.upstream_oauth2_url == "https://example.myshopify.com/admin/oauth/access_token"
    assert shop.upstream_oauth2_client_secret is not None
    assert shop.upstream_oauth2_client_secret.get_secret_value() == "shpat_1234"


def test_an_app_of_shopify_with_expiring_tokens_shares_them_in_postgresql(read: Read) -> None:
    keys = "client_id = 'id'\nclient_secret = 's'\nrefresh_token_file = 'token'\nstore_key = '" + KEY + "'\n"

    oauth2 = source_of(read(SHOP + keys), {}).endpoint.access.oauth2
    in_file = source_of(
        read(SHOP + keys + "upstream.oauth2_refresh_store = 'shared/tokens'"), {}
    ).endpoint.access.oauth2

    assert oauth2 is not None
    assert (oauth2.grant, type(oauth2.store)) == ("refresh_token", CredentialRow)
    assert in_file is not None
    assert isinstance(in_file.store, TokenFile)


def test_the_users_keys_override_those_of_the_kind(read: Read) -> None:
    text = """
        concurrency = 7
        mapping = "own.toml"
        base_url = "http://127.0.0.1:8081/shop"

        [sources.shop.upstream]
        auth = "bearer"
        token = "t0ken"
        rate = 20
    """

    shop = read(SHOP + text)

    assert shop.upstream_url == "http://127.0.0.1:8081/shop/admin/api/2026-07/orders/{order_id}.json"
    assert (shop.upstream_auth, shop.upstream_rate, shop.concurrency, shop.mapping) == ("bearer", 20.0, 7, "own.toml")


def test_the_polling_of_a_kind_can_be_switched_off(read: Read) -> None:
    keys = "[sources.a]\nkind = 'magento'\nbase_url = 'https://shop.example'\ntoken = 't'\n"

    assert source_of(read(keys), {}).poll == 300.0
    off = source_of(read(keys + "poll = 0"), {})
    assert (off.poll, off.order_list is not None) == (None, True)
    with pytest.raises(ConfigError, match="at least 1 second, or 0"):
        read(keys + "poll = 0.5")


def test_a_webhook_gets_the_profile_of_the_kind(read: Read) -> None:
    shop = read(SHOP + "token_file = 'token'\nwebhook = { secret_files = ['token'], express = true }")

    webhook = webhook_of(shop)

    assert webhook is not None
    assert shop.webhook == {"profile": "shopify", "secret_files": ["token"], "express": True}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[sources.a]\nkind = 'shopfy-rest'",
            "line 2, sources.a.kind: unknown kind 'shopfy-rest'; did you mean `shopify-rest`?",
        ),
        ("[sources.a]\nkind = 7", "line 2, sources.a.kind: unknown kind '7'; write one of "),
        (
            "[sources.a]\nkind = 'shopify-rest'\ntoken = 't'",
            "line 1, sources.a: needs the key `shop`, such as example.myshopify.com",
        ),
        (
            SHOP,
            "line 2, sources.shop.kind: the kind `shopify-rest` needs `token_file`, or `client_id_file` and `client_secret_file`",
        ),
        (SHOP + "client_id = 'i'", "`store_key_file` (got client_id)"),
        (SHOP + "token = 't'\nclient_id = 'i'", "`store_key_file` (got client_id, token)"),
        (SHOP + "tokn = 't'", "line 4, sources.shop.tokn: unknown key `tokn`; did you mean `token`?"),
        (SHOP + "token = 7", "line 4, sources.shop.token: must be a text"),
        (
            SHOP + "token = 's3cret'\ntoken_file = 'x'",
            "line 4, sources.shop.token: both `token` and `token_file` are set",
        ),
        (SHOP + "token_file = 'none'", "line 4, sources.shop.token_file: cannot read none: No such file or directory"),
        (SHOP + "token = 's3 cr√et'", "line 4, sources.shop.token: "),
        (SHOP + "token = 't'\nupstream.auth = 'none'", "line 4, sources.shop.token: `token` has no effect"),
        (
            SHOP.replace("example.", "https://example."),
            "line 3, sources.shop.shop: is not valid, such as example.myshopify.com (got 'https://example.myshopify.com')",
        ),
        (
            SHOP + "base_url = 'http://s/'",
            "line 4, sources.shop.base_url: must be a URL without a user, a query or a slash at its end",
        ),
        (SHOP + "token = 't'\nupstream.rate = -1", "line 5, sources.shop.upstream.rate: input should be greater"),
        (SHOP + "token = 't'\nupstream = 7", "line 5, sources.shop.upstream: must be a table"),
    ],
)
def test_an_error_names_the_key_in_the_users_file_and_no_secret(read: Read, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)

    assert problem in str(caught.value)
    assert "s3" not in str(caught.value)


def cases() -> list[tuple[str, dict[str, str]]]:
    """Each kind with each form of its credential, and each value of its keys with several."""
    found = []
    for name in kind_names():
        kind = load_kind(name)
        needed = {
            key: declared.example or "https://shop.example"
            for key, declared in kind.keys.items()
            if declared.default is None and not declared.is_secret
        }
        chosen = [{key: value} for key, declared in kind.keys.items() for value in declared.values]
        for credential, values in product(kind.credentials, chosen or [{}]):
            secrets = {key: KEY if key == "store_key" else "s3cret" for key in credential.keys}
            found.append((name, needed | values | secrets))
    return found


@pytest.mark.parametrize(("kind", "keys"), cases())
def test_each_kind_can_be_used_with_each_credential(read: Read, kind: str, keys: dict[str, str]) -> None:
    lines = "\n".join(f"{key} = '{value}'" for key, value in keys.items())

    has_webhook = "webhook" in load_kind(kind).source
    webhook = "webhook.secret_files = ['token']" if has_webhook else ""

    settings = read(f"[sources.shop]\nkind = '{kind}'\n{lines}\n{webhook}\n")

    assert source_of(settings, {}).has_quota
    assert (webhook_of(settings) is not None) == has_webhook


@pytest.mark.parametrize("name", kind_names())
def test_each_url_of_a_kind_is_below_its_base_url(name: str) -> None:
    kind = load_kind(name)
    needed = {
        key: declared.example
        for key, declared in kind.keys.items()
        if declared.default is None and not declared.is_secret
    }
    for credential in kind.credentials:
        table = expand(
            {**needed, "kind": name, "base_url": "http://127.0.0.1:1/x", **dict.fromkeys(credential.keys, "s")}
        ).table

        assert all(url.startswith("http://127.0.0.1:1/x/") for url in urls_in(table))


def urls_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [url for each in value.values() for url in urls_in(each)]
    return [value] if isinstance(value, str) and value.startswith("http") else []


def test_the_keys_of_kinds_are_not_ordinary_keys() -> None:
    assert not {key for name in kind_names() for key in load_kind(name).keys} & {*TOP_KEYS}


def test_the_page_has_each_kind_with_its_keys() -> None:
    page = PAGE.read_text(encoding="utf-8")

    for name in kind_names():
        kind = load_kind(name)
        keys = [f"`{key}{'_file' if declared.is_secret else ''}`" for key, declared in kind.keys.items()]
        assert f"| `{name}` | {kind.about} | {', '.join(keys)} |" in page
        for key, declared in kind.keys.items():
            shown = "`" + key + ("_file" if declared.is_secret else "") + "`"
            assert f"| {shown} | {default_of(declared)} | {declared.about} |" in page


def default_of(key: Any) -> str:
    if key.default is not None:
        return f"`{key.default}`"
    return "none" if key.is_secret else "required"
