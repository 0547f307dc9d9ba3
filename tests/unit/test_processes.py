"""What the processes of every long-running command share."""

import resource
from pathlib import Path

from ingest.processes import OTHER_FILES, reserve_connections


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
