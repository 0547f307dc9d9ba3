"""Files that users name, and what may be in place of one."""

import os
import threading
from pathlib import Path

import pytest

from ingest.files.regular import NotRegular, open_regular, read_once


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_without_a_writer_is_not_waited_for(pipe: Path) -> None:
    with pytest.raises(NotRegular, match="Not a regular file"):
        open_regular(pipe)
    with pytest.raises(OSError, match="No data in the pipe"):
        read_once(pipe, 10, within=0.01)


def test_a_pipe_is_read_to_its_end_also_when_its_writer_comes_later(pipe: Path) -> None:
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 200_000,))
    writer.start()

    content = read_once(pipe, 1_000_000)

    writer.join()
    assert content == b"x" * 200_000


def test_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/zero")

    for read in (open_regular, lambda path: read_once(path, 10)):
        with pytest.raises(NotRegular):
            read(tmp_path / "link")


def test_no_more_is_read_than_tells_that_it_is_too_much(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100)

    assert read_once(tmp_path / "large", 10) == b"x" * 11
