"""Bytes that a process publishes to its relatives."""

import subprocess
import sys

import pytest

from ingest.process.shared_bytes import SharedBytes

# A separate process, because the test process has threads, which do not survive a fork.
FORKING = """
import os
from ingest.process.shared_bytes import SharedBytes

shared = SharedBytes(100)
for text in (b"first", b"second", b"3rd"):
    if not (pid := os.fork()):
        shared.publish(text)
        os._exit(0)
    os.waitpid(pid, 0)
print(*shared.read(), shared.number)
"""


def test_a_process_reads_the_last_bytes_that_another_one_has_published() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == "3 b'3rd' 3\n"


def test_without_a_publication_there_are_no_bytes() -> None:
    assert SharedBytes(10).read() == (0, b"")


def test_bytes_over_the_capacity_are_an_error_and_the_ones_before_stay() -> None:
    shared = SharedBytes(4)
    shared.publish(b"1234")

    with pytest.raises(ValueError, match="5 bytes do not fit into 4"):
        shared.publish(b"12345")

    assert shared.read() == (1, b"1234")
