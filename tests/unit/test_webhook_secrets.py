"""Secrets in files are used soon after they have changed, and what cannot be read changes nothing."""

from functools import partial
from pathlib import Path

import pytest

from ingest.api.webhooks.keys import HmacKey, ParseKey, hmac_key
from ingest.api.webhooks.secret_files import SecretFiles

HEX, BASE64 = partial(hmac_key, encoding="hex"), partial(hmac_key, encoding="base64")


def secrets(files: SecretFiles) -> list[str]:
    return [key.secret.decode() for key in files.keys if isinstance(key, HmacKey)]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_each_line_of_each_file_is_a_secret_except_comments(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "a").write_bytes(mark + b"the-new-secret\r\n\nthe-old-secret \n")
    (tmp_path / "b").write_bytes(mark + b"# the secret of 2026\nthe#third-secret\n  # old\n#\n#an-older-one\n")

    found = secrets(SecretFiles([tmp_path / "a", tmp_path / "b"], hmac_key))

    assert found == ["the-new-secret", "the-old-secret", "the#third-secret"]


@pytest.mark.parametrize(("secret", "parse"), [("x", hmac_key), ("1234567", hmac_key), ("00ff", HEX), ("AP8=", BASE64)])
def test_a_secret_that_could_be_guessed_is_an_error(tmp_path: Path, secret: str, parse: ParseKey) -> None:
    (tmp_path / "a").write_text(f"0011223344556677\n{secret}\n")

    with pytest.raises(ValueError, match="shorter than 8"):
        SecretFiles([tmp_path / "a"], parse)


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_a_byte_order_mark_alone_is_no_secret(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)

    with pytest.raises(ValueError, match="contains no secret"):
        SecretFiles([tmp_path / "a"], hmac_key)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff", None])
async def test_a_file_that_cannot_be_used_changes_nothing_until_it_can(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "a").write_text("the-old-secret")
    files = SecretFiles([tmp_path / "a"], hmac_key)
    watched = files.watched("shop")
    await watched.start()

    (tmp_path / "a").unlink()
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    for _ in range(3):
        await watched.check()
    assert secrets(files) == ["the-old-secret"]

    (tmp_path / "a").write_text("the new one")
    for _ in range(2):
        await watched.check()
    assert secrets(files) == ["the new one"]


@pytest.mark.parametrize("content", [b"", b"\xff", None])
async def test_a_process_that_starts_while_a_file_cannot_be_used_accepts_no_secret_until_it_can(
    tmp_path: Path, content: bytes | None
) -> None:
    (tmp_path / "a").write_text("the-revoked-secret")
    files = SecretFiles([tmp_path / "a"], hmac_key)
    (tmp_path / "a").unlink()
    if content is not None:
        (tmp_path / "a").write_bytes(content)

    watched = files.watched("shop")
    await watched.start()
    assert secrets(files) == []

    (tmp_path / "a").write_text("the-new-secret")
    for _ in range(2):
        await watched.check()
    assert secrets(files) == ["the-new-secret"]


async def test_no_secret_is_in_what_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("0011223344556677")
    files = SecretFiles([tmp_path / "a"], HEX)
    watched = files.watched("shop")
    await watched.start()
    (tmp_path / "a").write_text("do-not-log-this")

    for _ in range(3):
        await watched.check()

    output = capsys.readouterr()
    text = output.out + output.err
    assert text.count("secret_not_reloaded") == 1
    assert "a secret is not hex" in text
    assert "do-not-log-this" not in text
