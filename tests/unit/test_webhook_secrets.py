"""Secrets in files are used soon after they have changed, and what cannot be read changes nothing."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ingest.api.webhooks.keys import HmacKey, Key, text_key
from ingest.api.webhooks.secret_files import SecretFiles


class Clocks:
    """Two clocks, the second one of the files' times."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def write(path: Path, secrets: str, clocks: Clocks) -> None:
    path.write_text(secrets)
    os.utime(path, (clocks.wall(), clocks.wall()))


def opened(clocks: Clocks, *paths: Path) -> SecretFiles:
    return SecretFiles(paths, text_key(), clocks.monotonic, clocks.wall)


def secrets(keys: Sequence[Key]) -> list[str]:
    return [key.secret.decode() for key in keys if isinstance(key, HmacKey)]


def test_each_line_of_each_file_is_a_secret(tmp_path: Path, clocks: Clocks) -> None:
    write(tmp_path / "a", "new\r\n\nold \n", clocks)
    write(tmp_path / "b", "#third", clocks)

    assert secrets(opened(clocks, tmp_path / "a", tmp_path / "b").keys()) == ["new", "old", "#third"]


def test_a_changed_file_is_used_after_a_second(tmp_path: Path, clocks: Clocks) -> None:
    write(tmp_path / "a", "old", clocks)
    files = opened(clocks, tmp_path / "a")
    write(tmp_path / "a", "new", clocks)

    seen = []
    for _ in range(4):
        clocks.now += 0.6
        seen += secrets(files.keys())

    assert seen == ["old", "new", "new", "new"]


def test_a_file_that_has_just_been_changed_is_read_when_it_has_settled(tmp_path: Path, clocks: Clocks) -> None:
    write(tmp_path / "a", "old", clocks)
    files = opened(clocks, tmp_path / "a")

    clocks.now += 10
    write(tmp_path / "a", "n", clocks)
    assert secrets(files.keys()) == ["old"]
    clocks.now += 1
    write(tmp_path / "a", "new", clocks)
    assert secrets(files.keys()) == ["old"]
    clocks.now += 1
    assert secrets(files.keys()) == ["new"]


def test_a_replaced_link_is_noticed(tmp_path: Path, clocks: Clocks) -> None:
    write(tmp_path / "one", "aaa", clocks)
    write(tmp_path / "two", "bbb", clocks)
    (tmp_path / "link").symlink_to("one")
    files = opened(clocks, tmp_path / "link")

    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(tmp_path / "link")
    clocks.now += 2

    assert secrets(files.keys()) == ["bbb"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff"])
def test_a_file_that_cannot_be_used_changes_nothing_until_it_can(
    tmp_path: Path, clocks: Clocks, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a", "old", clocks)
    files = opened(clocks, tmp_path / "a")
    (tmp_path / "a").write_bytes(content)
    os.utime(tmp_path / "a", (clocks.wall(), clocks.wall()))

    for _ in range(3):
        clocks.now += 2
        assert secrets(files.keys()) == ["old"]
    output = capsys.readouterr()
    assert (output.out + output.err).count("secret_not_reloaded") == 1

    write(tmp_path / "a", "new", clocks)
    clocks.now += 2
    assert secrets(files.keys()) == ["new"]


def test_a_removed_file_changes_nothing(tmp_path: Path, clocks: Clocks) -> None:
    write(tmp_path / "a", "old", clocks)
    files = opened(clocks, tmp_path / "a")
    (tmp_path / "a").unlink()

    for _ in range(3):
        clocks.now += 2
        assert secrets(files.keys()) == ["old"]


def test_files_are_looked_at_once_a_second_at_most(tmp_path: Path, clocks: Clocks) -> None:
    write(tmp_path / "a", "old", clocks)
    files = opened(clocks, tmp_path / "a")
    clocks.now += 2
    files.keys()
    write(tmp_path / "a", "new", clocks)

    clocks.now += 0.9

    assert secrets(files.keys()) == ["old"]
