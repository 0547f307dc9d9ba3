"""The webhook of a named source, a table of the sources file."""

from pathlib import Path

import pytest

from ingest.api.webhooks.source_webhook import webhook_of
from ingest.domain.errors import ConfigError
from ingest.settings import Settings, load_settings
from ingest.settings.source_file import source_settings

UPSTREAM = "[sources.shop-de.upstream]\nurl = 'https://shop.example/{order_id}'\n"


def shop(home: Path, webhook: str) -> Settings:
    (home / "conf").mkdir()
    (home / "conf" / "sources.toml").write_text(f"{UPSTREAM}[sources.shop-de.webhook]\n{webhook}")
    return source_settings(load_settings(sources="conf/sources.toml"))["shop-de"]


def test_it_has_the_name_of_its_source_and_secrets_beside_the_file(home: Path) -> None:
    settings = shop(
        home, "profile = 'stripe'\nsecret_files = ['secret']\nevents = ['*']\norder_id = 'id'\ntolerance = '10m'\n"
    )
    (home / "conf" / "secret").write_text("a shared secret\n")

    webhook = webhook_of(settings)

    assert webhook is not None
    assert webhook.tolerance == 600.0
    assert (webhook.name, webhook.path, len(webhook.secrets.keys)) == ("shop-de", "/v1/webhooks/shop-de", 1)
    assert webhook_of(load_settings()) is None


@pytest.mark.parametrize(
    ("webhook", "problem"),
    [
        (
            "profile = 'shopify'\nsecret_files = ['none']",
            "line 5, sources.shop-de.webhook.secret_files: cannot read conf/none",
        ),
        (
            "profile = 'shopify'\nsecret_file = 'a'",
            "line 5, sources.shop-de.webhook.secret_file: unknown key `secret_file`; did you mean `secret_files`?",
        ),
        (
            "profile = 'stripe'\nsecret_files = ['a']\ntolerance = '10 minutes'",
            "line 6, sources.shop-de.webhook.tolerance: write seconds, or a number with s, m, h or d",
        ),
        ("", "line 3, sources.shop-de.webhook: needs the key `profile`"),
    ],
)
def test_a_webhook_that_cannot_be_used_is_named_by_file_line_and_key(home: Path, webhook: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        webhook_of(shop(home, webhook))

    assert str(caught.value).startswith(f"INGEST_SOURCES: conf/sources.toml, {problem}")
