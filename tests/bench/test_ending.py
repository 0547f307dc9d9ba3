"""A bench that is ended early leaves nothing behind."""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest
from process_state import command_of, is_alive
from support import Cli, closing_cli, eventually_sync

# So slow that it still runs whenever the test gets to it.
SLOWLY = ("bench", "patterns", "--only", "semaphore", "--no-kill", "--orders", "10000", "--latency", "5")


@pytest.fixture
def bench() -> Iterator[Cli]:
    with closing_cli(dict(os.environ)) as cli:
        yield cli


@pytest.mark.parametrize(
    ("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -9)]
)
def test_all_processes_of_a_bench_end_with_it(bench: Cli, ending: signal.Signals, code: int) -> None:
    process = bench.start(*SLOWLY)
    family = eventually_sync(lambda: running_pattern(process.pid), within=90)

    process.send_signal(ending)

    assert process.wait(timeout=60) == code
    eventually_sync(lambda: not any(map(is_alive, family)))


def running_pattern(pid: int) -> list[psutil.Process]:
    """All processes of a bench while its pattern runs, or none before."""
    try:
        family = psutil.Process(pid).children(recursive=True)
        return family if any("ingest.bench.patterns.semaphore" in command_of(member) for member in family) else []
    except psutil.NoSuchProcess:
        return []
