"""What the processes of every long-running command share."""

import resource
from pathlib import Path

import pytest

from ingest.process.lifecycle import OTHER_FILES, AddressTaken, listen, reserve_connections


def files_with_room() -> int:
    """For how many open files the kernel has room without making its table larger (proc(5))."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("FDSize")]
    return int(line.split()[1])


def test_there_is_room_for_connections_before_they_are_opened_and_no_file_stays_open() -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    count = min(allowed, 2 * files_with_room() + OTHER_FILES) - OTHER_FILES - 1
    open_files = len(list(Path("/proc/self/fd").iterdir()))

    reserve_connections(count)

    assert files_with_room() >= count + OTHER_FILES
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


def test_room_for_more_files_than_are_allowed_is_not_asked_for() -> None:
    before = files_with_room()

    reserve_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[1])

    assert files_with_room() == before


def test_an_address_that_cannot_be_used_is_an_error_with_its_reason() -> None:
    with pytest.raises(AddressTaken) as unresolved:
        listen("/metrics", "a..b", 1, "set it")
    with pytest.raises(AddressTaken) as elsewhere:
        listen("/metrics", "192.0.2.1", 0, "set it")

    assert str(unresolved.value).startswith("/metrics cannot listen on a..b:1: ")
    assert "Unknown error" not in str(unresolved.value)
    assert str(elsewhere.value) == "/metrics cannot listen on 192.0.2.1:0: Cannot assign requested address; set it"


@pytest.mark.parametrize("host", ["\u00e4..x", "\u00e4" * 70])
def test_what_cannot_be_the_name_of_a_host_is_such_an_error_too(host: str) -> None:
    with pytest.raises(AddressTaken) as refused:
        listen("/metrics", host, 1, "set it")

    assert str(refused.value) == f"/metrics cannot listen on {host}:1: the host is not a name or an address; set it"
