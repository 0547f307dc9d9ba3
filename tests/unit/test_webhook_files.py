"""The file of webhook sources: every mistake is one line with file, line and field, and no secret is in it."""

import os
from pathlib import Path

import pytest
from webhook_requests import STANDARD_SECRET

from ingest.api.webhooks.load import load_webhooks
from ingest.domain.errors import ConfigError

SECRET = "do-not-print-this"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "standard").write_text(STANDARD_SECRET)
    (tmp_path / "empty").write_text(" \n\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "private").write_text(f"whsk_{SECRET}")
    (tmp_path / "short-key").write_text("whpk_AAAA")
    (tmp_path / "no-bytes").write_text("whsec_")
    return tmp_path


def refusal(folder: Path, text: str) -> str:
    path = folder / "webhooks.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_webhooks(str(path))
    message = str(caught.value)
    prefix = f"INGEST_WEBHOOKS: {path}"
    assert message.startswith(prefix)
    assert SECRET not in message
    assert "\n" not in message
    return message.removeprefix(prefix).replace(str(folder), "").removeprefix(", ").removeprefix(": ")


SHOP = '[sources.shop]\nprofile = "shopify"\nsecret_files = ["secret"]\n'
HMAC = '[sources.shop]\nprofile = "hmac"\nsecret_files = ["secret"]\norder_id = "id"\n[sources.shop.signature]\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "needs the key `sources`"),
        ("[sources]", "contains no webhook: write a table [sources.NAME] for each"),
        ("sources = 1", "line 1, sources: Expected `object`, got `int`"),
        ("[sources", "not TOML: "),
        (f"{SHOP}coalesce = {'1' * 5_000}", "not TOML: Exceeds the limit (4300 digits)"),
        ("[source.shop]", "line 1, source: unknown key `source`; did you mean `sources`?"),
        ("[sources]\nshop = 1", "line 2, sources.shop: Expected `object`, got `int`"),
        ('[sources.shop]\nprofile = "shopify"', "line 1, sources.shop: needs the key `secret_files`"),
        ('[sources.shop]\nsecret_files = ["a"]', "line 1, sources.shop: needs the key `profile`"),
        (SHOP.replace("shopify", "ebay"), "line 2, sources.shop.profile: Invalid enum value 'ebay'"),
        (SHOP + "exprss = true", "line 4, sources.shop.exprss: unknown key `exprss`; did you mean `express`?"),
        (f'{SHOP}secret = "{SECRET}"', "line 4, sources.shop.secret: unknown key `secret`"),
        (SHOP.replace('"secret"]', "]"), "line 3, sources.shop.secret_files: Expected `array` of length >= 1"),
        (SHOP.replace('["secret"]', '"secret"'), "line 3, sources.shop.secret_files: Expected `array`, got `str`"),
        (SHOP.replace('"secret"', '"nowhere"'), "secret_files: cannot read /nowhere: No such file or directory"),
        (SHOP.replace('"secret"', '"."'), "secret_files: cannot read : Is a directory"),
        (SHOP.replace('"secret"', '"empty"'), "secret_files: /empty contains no secret"),
        (SHOP.replace('"secret"', '"binary"'), "secret_files: /binary is not UTF-8 text"),
        (SHOP.replace('"secret"', '"/dev/zero"'), "cannot read /dev/zero: Not a regular file"),
        (SHOP + "tolerance = 5", "line 4, sources.shop.tolerance: there is no signed timestamp that this could be for"),
        (SHOP + "coalesce = -1", "line 4, sources.shop.coalesce: Expected `float` >= 0.0"),
        (SHOP + 'order_id = "a..b"', "line 4, sources.shop.order_id: 'a..b' is not a path"),
        (SHOP + 'order_id = "a b"', "line 4, sources.shop.order_id: 'a b' is not a path"),
        (SHOP + 'order_id = "items[]"', "line 4, sources.shop.order_id: 'items[]' is not a path"),
        (SHOP + 'order_id = ".a"', "line 4, sources.shop.order_id: '.a' is not a path"),
        (SHOP + 'order_id = "a."', "line 4, sources.shop.order_id: 'a.' is not a path"),
        (SHOP + 'order_id = "a.[0]"', "line 4, sources.shop.order_id: 'a.[0]' is not a path"),
        (SHOP + 'order_id = "[0]a"', "line 4, sources.shop.order_id: '[0]a' is not a path"),
        (SHOP + 'order_id = ""', "line 4, sources.shop.order_id: an empty path"),
        (SHOP + 'document = "a b"', "line 4, sources.shop.document: 'a b' is not a path"),
        (SHOP + 'event = { header = "a b" }', "line 4, sources.shop.event.header: 'a b' is not the name of a header"),
        (SHOP + 'event = { path = "a" }', "line 4, sources.shop.event.path: unknown key `path`"),
        (SHOP + "events = []", "line 4, sources.shop.events: Expected `array` of length >= 1"),
        (SHOP + "[sources.shop.signature]\nheader = 'X'", "line 4, sources.shop.signature: `signature` is for the profile"),
        (SHOP.replace(".shop]", '."my shop"]'), "sources.my shop: a name is 1 to 64 of a-z 0-9 _ -"),
        (SHOP.replace(".shop]", ".Shop]"), "line 1, sources.Shop: a name is 1 to 64 of a-z 0-9 _ -"),
        (SHOP.replace("shopify", "stripe"), "line 1, sources.shop: needs the key `events`"),
        (SHOP.replace("shopify", "stripe") + 'events = ["a"]', "line 1, sources.shop: needs the key `order_id`"),
        (SHOP.replace("shopify", "standard"), "line 1, sources.shop: needs the key `order_id`"),
        (SHOP.replace("shopify", "hmac"), "line 1, sources.shop: the profile `hmac` needs the table `signature`"),
        (HMAC, "line 5, sources.shop.signature: needs the key `header`"),
        (HMAC + 'header = "X:"', "line 6, sources.shop.signature.header: 'X:' is not the name of a header"),
        (HMAC + 'header = "X"\nalgorithm = "md5"', "line 7, sources.shop.signature.algorithm: Invalid enum value 'md5'"),
        (HMAC + 'header = "X"\nsigned = "x"', "line 7, sources.shop.signature.signed: needs {body} once"),
        (HMAC + 'header = "X"\nsigned = "{body}{body}"', "line 7, sources.shop.signature.signed: needs {body} once"),
        (HMAC + 'header = "X"\nsigned = "{url}{body}"', "line 7, sources.shop.signature.signed: needs {body} once"),
        (
            HMAC + 'header = "X"\nsigned = "{timestamp}{body}"\ntimestamp_header = "T"',
            "line 7, sources.shop.signature.signed: needs a separator, such as a dot, between two placeholders",
        ),
        (
            HMAC.replace('order_id = "id"', 'order_id = { header = "X-Order" }') + 'header = "X"',
            "line 4, sources.shop.order_id: the header X-Order is not signed",
        ),
        (HMAC + 'header = "X"\nsigned = "{id}{body}"', "{id} in `signed` and the key `id_header` need each other"),
        (HMAC + 'header = "X"\ntimestamp_header = "T"', "{timestamp} in `signed` and the key `timestamp_header` need"),
        (HMAC + 'header = "X"\nkey = "hex"', "line 3, sources.shop.secret_files: /secret: a secret is not hex"),
        (HMAC.replace("[sources.shop.s", 'events = ["a"]\n[sources.shop.s') + 'header = "X"', "`events` needs `event`"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line_and_field(folder: Path, text: str, expected: str) -> None:
    assert expected in refusal(folder, text)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("private", "/private: a secret is a private key (whsk_…), which only the sender may have"),
        ("short-key", "/short-key: a public key has not 32 bytes"),
        ("no-bytes", "/no-bytes: a secret is shorter than 16 bytes"),
        ("secret", "/secret: a secret is not whsec_ or whpk_ with base64 behind it"),
    ],
)
def test_secrets_of_standard_webhooks_are_checked(folder: Path, file: str, expected: str) -> None:
    text = f'[sources.shop]\nprofile = "standard"\norder_id = "data.id"\nsecret_files = ["standard", "{file}"]'

    assert expected in refusal(folder, text)


def test_the_second_of_two_sources_is_named(folder: Path) -> None:
    assert "line 5, sources.two: needs the key `profile`" in refusal(
        folder, f"{SHOP}\n[sources.two]\nsecret_files = ['a']"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere.toml", "cannot read"),
        (".", "cannot read"),
        ("/dev/zero", "cannot read /dev/zero: Not a regular file"),
        ("pipe.toml", "Not a regular file"),
        ("large.toml", "it is not a file of webhooks"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(folder: Path, name: str, expected: str) -> None:
    os.mkfifo(folder / "pipe.toml")
    (folder / "large.toml").write_bytes(b"#" * (1024 * 1024 + 1))

    with pytest.raises(ConfigError, match=f"INGEST_WEBHOOKS: .*{expected}"):
        load_webhooks(str(folder / name))


def test_paths_of_secrets_begin_at_the_folder_of_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "webhooks.toml").write_text(SHOP)
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")

    (source,) = load_webhooks("../webhooks.toml")

    assert source.path == "/v1/webhooks/shop"
