"""Secrets in files are used soon after they have changed, and what cannot be read changes nothing."""

from pathlib import Path

import pytest

from ingest.api.webhooks.keys import HmacKey, encoded_key, text_key
from ingest.api.webhooks.secret_files import SecretFiles


def secrets(files: SecretFiles) -> list[str]:
    return [key.secret.decode() for key in files.keys if isinstance(key, HmacKey)]


def test_each_line_of_each_file_is_a_secret(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new\r\n\nold \n")
    (tmp_path / "b").write_text("#third")

    assert secrets(SecretFiles([tmp_path / "a", tmp_path / "b"], text_key())) == ["new", "old", "#third"]


def test_a_byte_order_mark_is_no_part_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfnew\r\nold\r\n")

    assert secrets(SecretFiles([tmp_path / "a"], text_key())) == ["new", "old"]


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_a_byte_order_mark_alone_is_no_secret(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)

    with pytest.raises(ValueError, match="has no secret"):
        SecretFiles([tmp_path / "a"], text_key())


async def test_a_changed_file_is_used_when_it_does_not_change_any_more(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    files = SecretFiles([tmp_path / "a"], text_key())
    watched = files.watched()
    await watched.start()
    (tmp_path / "a").write_text("the new one")

    seen = []
    for _ in range(3):
        await watched.check()
        seen += secrets(files)

    assert seen == ["old", "the new one", "the new one"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff", None])
async def test_a_file_that_cannot_be_used_changes_nothing_until_it_can(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "a").write_text("old")
    files = SecretFiles([tmp_path / "a"], text_key())
    watched = files.watched()
    await watched.start()

    (tmp_path / "a").unlink()
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    for _ in range(3):
        await watched.check()
    assert secrets(files) == ["old"]

    (tmp_path / "a").write_text("the new one")
    for _ in range(2):
        await watched.check()
    assert secrets(files) == ["the new one"]


async def test_a_process_that_starts_later_reads_the_files_of_then(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    files = SecretFiles([tmp_path / "a"], text_key())
    (tmp_path / "a").write_text("new")

    await files.watched().start()

    assert secrets(files) == ["new"]


async def test_no_secret_is_in_what_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("00ff")
    files = SecretFiles([tmp_path / "a"], encoded_key("hex", "sha256"))
    watched = files.watched()
    await watched.start()
    (tmp_path / "a").write_text("do-not-log-this")

    for _ in range(3):
        await watched.check()

    output = capsys.readouterr()
    text = output.out + output.err
    assert text.count("secret_not_reloaded") == 1
    assert "a secret is not hex" in text
    assert "do-not-log-this" not in text
