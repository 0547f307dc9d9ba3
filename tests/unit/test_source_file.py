"""The file of the sources, INGEST_SOURCES."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.domain.errors import ConfigError
from ingest.settings import Settings, load_settings
from ingest.settings.loading import Settings as EverySetting
from ingest.settings.masked_values import effective, effective_source
from ingest.settings.names import describes_source, naming_keys_of, setting_name
from ingest.settings.source_file import (
    problem_in_source,
    source_names,
    source_settings,
    source_settings_without_secrets,
)
from ingest.settings.source_values import KEYS
from ingest.settings.topics.lists import ListSettings
from ingest.settings.topics.processing import ProcessingSettings
from ingest.settings.topics.upstream import UpstreamSettings
from ingest.sources.from_settings import source_of

Read = Callable[..., dict[str, Settings]]
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES = ("sources.md", "shop-kinds.md", "responses.md", "order-lists.md")
SHOP = "[sources.shop-de.upstream]\nurl = 'https://shop.example/orders/{order_id}'\n"


@pytest.fixture
def read(home: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads the settings of the sources in a text."""
    monkeypatch.setenv("INGEST_SOURCES", "conf/sources.toml")
    (home / "conf").mkdir()

    def read(text: str, **overrides: object) -> dict[str, Settings]:
        (home / "conf" / "sources.toml").write_text(text)
        return source_settings(load_settings(**overrides))

    return read


def test_each_source_has_its_own_settings(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_CONCURRENCY", "30")
    monkeypatch.setenv("INGEST_COALESCE", "5")
    text = """
        [sources.shop-de]
        concurrency = 20
        mapping = "shopify"
        keep_document = true
        results_age = "2h"

        [sources.shop-de.upstream]
        url = "https://shop.example/orders/{order_id}"
        token = "t0ken"
        rate = 10
        timeout = "1m"
        headers = { X-Shop = "7" }

        [sources.warehouse]
        concurrency = 50
        coalesce = 1.5
        upstream.url = "https://wms.example/{order_id}"
    """

    sources = read(text)

    shop, warehouse = sources["shop-de"], sources["warehouse"]
    assert list(sources) == ["shop-de", "warehouse"]
    assert (shop.source, shop.stream, warehouse.stream) == ("shop-de", "orders/shop-de", "orders/warehouse")
    assert (shop.concurrency, shop.mapping, shop.keep_document, shop.results_age) == (20, "shopify", "on", 7200.0)
    assert (shop.upstream_rate, shop.upstream_timeout, shop.coalesce) == (10.0, 60.0, 5.0)
    assert source_of(shop, {}).endpoint.access.secrets["headers"].value == '{"X-Shop": "7"}'
    # INGEST_CONCURRENCY bounds the process.
    assert (warehouse.concurrency, warehouse.coalesce, warehouse.upstream_token) == (30, 1.5, None)


def test_paths_are_relative_to_the_file_and_a_secret_is_read_again_from_its_file(read: Read, home: Path) -> None:
    (home / "conf" / "token").write_text("t0ken\n")
    text = "[sources.shop-de]\nmapping = 'maps/own.toml'\n" + SHOP + "token_file = 'token'\nca_file = '/etc/ca.pem'\n"

    shop = read(text)["shop-de"]

    assert shop.mapping == "conf/maps/own.toml"
    assert shop.upstream_ca_file == "/etc/ca.pem"
    assert shop.upstream_token is not None
    assert shop.upstream_token.get_secret_value() == "t0ken"
    assert shop.file_of("upstream_token") == Path("conf/token")


def test_the_table_of_a_webhook_is_kept_for_who_receives_it(read: Read) -> None:
    shop = read(SHOP + "[sources.shop-de.webhook]\nprofile = 'shopify'\nsecret_files = ['s']\n")["shop-de"]

    assert shop.webhook == {"profile": "shopify", "secret_files": ["s"]}
    problem = problem_in_source(shop, "cannot be read", ("webhook", "secret_files"))
    assert str(problem) == (
        "INGEST_SOURCES: conf/sources.toml, line 5, sources.shop-de.webhook.secret_files: cannot be read"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "conf/sources.toml: contains no source: write a table [sources.NAME] for each"),
        ("[shops.a]", "line 1, shops: unknown key `shops`: write a table [sources.NAME] for each source"),
        ("[sources.a", "conf/sources.toml: not TOML: Expected ']' at the end of a table declaration"),
        ("[sources]\na = 1", "line 2, sources.a: must be a table"),
        ("[sources.Shop]", "line 1, sources.Shop: 'Shop' is not the name of a source"),
        ("[sources.a]\nmapping = 'shopify'", "line 1, sources.a.upstream: needs the key `url`"),
        (SHOP + "tokn = 's3cret'", "line 3, sources.shop-de.upstream.tokn: unknown key `tokn`; did you mean `token`?"),
        (
            "[sources.a]\nurl = 'http://s/{order_id}'",
            "line 2, sources.a.url: unknown key `url`: it belongs into the table `upstream`",
        ),
        (SHOP + "rate = '10'", "line 3, sources.shop-de.upstream.rate: input should be a valid number (got '10')"),
        (
            SHOP + "token = 's3cret key'",
            "line 3, sources.shop-de.upstream.token: must be printable ASCII without spaces",
        ),
        (SHOP + "token = 5353", "line 3, sources.shop-de.upstream.token: input should be a valid string"),
        (SHOP + "timeout = '5 min'", "sources.shop-de.upstream.timeout: write seconds, or a number with s, m, h or d"),
        (SHOP + "timeout = '0s'", "sources.shop-de.upstream.timeout: input should be greater than 0 (got '0s')"),
        (
            SHOP + "token = 'a'\ntoken_file = 'b'",
            "sources.shop-de.upstream.token: both `token` and `token_file` are set",
        ),
        (SHOP + "token_file = 'none'", "sources.shop-de.upstream.token_file: cannot read conf/none: No such file"),
        (SHOP + "token_file = 7", "sources.shop-de.upstream.token_file: must be the path of a file"),
        (
            "[sources.a.upstream]\nurl = 'http://s/'",
            "line 2, sources.a.upstream.url: must contain {order_id} exactly once",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_with_the_place_and_no_secret(
    read: Read, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)

    line = str(caught.value)
    assert line.startswith("INGEST_SOURCES: conf/sources.toml")
    assert problem in line
    assert "\n" not in line
    assert "s3cret" not in line
    assert "5353" not in line


def test_a_secret_in_a_file_that_cannot_be_used_is_not_shown(read: Read, home: Path) -> None:
    (home / "conf" / "token").write_text("s3cret key\n")

    with pytest.raises(
        ConfigError, match=r"line 3, sources\.shop-de\.upstream\.token_file: must be printable"
    ) as caught:
        read(SHOP + "token_file = 'token'")

    assert "s3cret" not in str(caught.value)


def test_there_are_at_most_a_thousand_sources(read: Read) -> None:
    tables = [f"[sources.s{number}]\nupstream.url = 'http://s/{{order_id}}'\n" for number in range(1_001)]

    assert len(read("".join(tables[:-1]))) == 1_000
    with pytest.raises(ConfigError, match="contains 1,001 sources, and the most are 1,000"):
        read("".join(tables))


@pytest.mark.parametrize("name", ["UPSTREAM_URL", "MAPPING", "TRANSFORM_MEMORY", "RESULTS", "WEBHOOKS"])
def test_what_describes_a_source_is_either_in_the_file_or_in_the_environment(
    read: Read, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"UPSTREAM_URL": "http://s/{order_id}", "TRANSFORM_MEMORY": "7", "RESULTS": "on"}
    monkeypatch.setenv(f"INGEST_{name}", values.get(name, "file.toml"))

    with pytest.raises(ConfigError, match=f"^INGEST_{name}: set together with INGEST_SOURCES"):
        read(SHOP)


def test_an_option_of_the_command_line_replaces_the_value_of_the_file(read: Read) -> None:
    shop = read(SHOP, upstream_url="http://other/{order_id}", concurrency=3)["shop-de"]

    assert (shop.upstream_url, shop.concurrency) == ("http://other/{order_id}", 3)


def test_settings_that_do_not_fit_together_are_named_by_their_keys(read: Read) -> None:
    shop = read(SHOP + "auth = 'bearer'")["shop-de"]

    with pytest.raises(ConfigError) as caught:
        source_of(shop, os.environ)

    assert str(caught.value) == (
        "sources.shop-de.upstream.token is missing: sources.shop-de.upstream.auth=bearer needs it"
    )


def test_an_error_of_a_mapping_names_the_key_of_its_source(read: Read) -> None:
    shop = read("[sources.shop-de]\nmapping = 'none'\n" + SHOP)["shop-de"]

    with pytest.raises(ConfigError, match=r"^sources\.shop-de\.mapping: unknown mapping 'none'"):
        source_of(shop, os.environ)
    with pytest.raises(ConfigError, match=r"^INGEST_TRANSFORM: x"), naming_keys_of(""):
        raise ConfigError("INGEST_TRANSFORM: x")


def test_two_accounts_at_one_host_share_no_quota_unless_they_name_one(read: Read) -> None:
    text = "[sources.{0}.upstream]\nurl = 'https://shop.example/orders/{{order_id}}'\n"
    sources = read("".join(map(text.format, ("a", "b"))) + SHOP + "quota = 'both'")

    names = {name: source_of(settings, {}).quota_name for name, settings in sources.items()}

    assert names == {"a": "orders/a", "b": "orders/b", "shop-de": "both"}
    assert source_of(load_settings(sources=None, upstream_url="http://s/{order_id}"), {}).quota_name == "s"


def test_sources_that_share_a_quota_have_the_same_limits(read: Read) -> None:
    text = "[sources.{0}.upstream]\nurl = 'https://shop.example/orders/{{order_id}}'\nquota = 'both'\nrate = {1}\n"

    assert len(read(text.format("a", 5) + text.format("b", 5.0))) == 2
    with pytest.raises(
        ConfigError, match=r"line 8, sources\.b\.upstream\.rate: `rate` must be the same as in sources\.a"
    ):
        read(text.format("a", 5) + text.format("b", 6))


def test_the_settings_of_a_source_are_those_of_its_topics() -> None:
    topics = (UpstreamSettings, ProcessingSettings, ListSettings)
    of_source = {name for topic in topics for name in topic.model_fields}

    assert {name for name in EverySetting.model_fields if describes_source(name)} == of_source
    assert setting_name("", "upstream_token") == "INGEST_UPSTREAM_TOKEN"


def test_the_reference_has_each_key_and_its_examples_can_be_used(read: Read, home: Path) -> None:
    page = "".join((REFERENCE / name).read_text() for name in PAGES)
    examples = "\n".join(re.findall(r"```toml\n(.*?)```", page, re.DOTALL))
    (home / "conf" / "secrets").mkdir()
    for name in re.findall(r'_file = "(secrets/[^"]*)"', examples):
        (home / "conf" / name).write_text("s3cret")

    assert {"shop-de", "warehouse", "outdoor", "carrier"} <= read(examples).keys()
    assert [keys[-1] for keys in KEYS if f"`{keys[-1]}`" not in page] == []


def test_the_effective_values_of_a_source_are_masked(read: Read) -> None:
    shop = read(SHOP + "token = 's3cret'\nbulk_url = 'https://key@shop.example/?ids={order_ids}&key=s3cret'")["shop-de"]

    shown = effective_source(shop)

    assert {name: shown[name] for name in ("concurrency", "upstream_url", "upstream_token", "upstream_bulk_url")} == {
        "concurrency": 100,
        "upstream_url": "https://shop.example/orders/{order_id}",
        "upstream_token": "***",
        "upstream_bulk_url": "https://***@shop.example/?ids={order_ids}&key=***",
    }
    assert "s3cret" not in str(shown)
    assert "INGEST_UPSTREAM_URL" not in effective(shop)


TWO_SHOPS = """
    [sources.shop-de.upstream]
    url = "https://shop.example/orders/{order_id}"
    token_file = "secrets/shop-de"

    [sources.shop-fr.upstream]
    url = "https://shop.example/orders/{order_id}"
    body_file = "secrets/absent"
"""


@pytest.fixture
def two_shops(home: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a process with two sources, of which one has a secret that this process cannot read."""
    (home / "secrets").mkdir()
    (home / "secrets" / "shop-de").write_text("t0ken")
    (home / "sources.toml").write_text(TWO_SHOPS)
    monkeypatch.setenv("INGEST_SOURCES", "sources.toml")
    return load_settings()


def test_names_and_values_are_read_without_the_secrets(two_shops: Settings) -> None:
    sources = source_settings_without_secrets(two_shops)

    assert source_names(two_shops) == [*sources] == ["shop-de", "shop-fr"]
    assert [settings.stream for settings in sources.values()] == ["orders/shop-de", "orders/shop-fr"]
    assert sources["shop-de"].upstream_token is None


def test_the_secrets_of_other_sources_are_not_read(two_shops: Settings) -> None:
    sources = source_settings(two_shops, ["shop-de"])

    assert [*sources] == ["shop-de"]
    assert sources["shop-de"].upstream_token is not None
    with pytest.raises(ConfigError, match=r"body_file.*absent"):
        source_settings(two_shops)


def test_without_a_file_the_only_name_is_empty() -> None:
    assert source_names(load_settings()) == [""]
