"""Process control of the lab: processes exchange lines, are measured, and end with all their children."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from process_state import is_alive
from support import eventually_sync

from ingest.lab.commands import Commands
from ingest.lab.endpoints import ApiControl, Metrics
from ingest.lab.errors import LabFailed
from ingest.lab.programs import Program
from ingest.lab.usage import PeakMemory, cpu_seconds, descendants, memory_bytes
from ingest.lab.watchdog import Watchdog

_ECHOES = """
import os, sys
sys.stderr.write("a line of the log\\n")
for line in sys.stdin:
    word = line.strip()
    if word == "end":
        sys.exit(3)
    print(os.environ.get(word, word), flush=True)
"""
_HAS_CHILDREN = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
"""
_USES_MEMORY = """
import sys
block = b"x" * 50_000_000
while sum(range(100_000)) and "done" not in locals():
    print("ready", flush=True)
    done = sys.stdin.readline()
"""


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    with Watchdog() as running:
        yield running


def program(home: Path, watchdog: Watchdog, source: str, **environment: str) -> Program:
    (home / "sample_program.py").write_text(source)
    return Program("sample_program", environment={"PYTHONPATH": str(home), **environment}, home=home, watchdog=watchdog)


def test_a_program_answers_line_by_line_and_gets_nothing_but_its_own_environment(
    tmp_path: Path, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the caller")
    running = program(tmp_path, watchdog, _ECHOES, GIVEN="to it")

    try:
        for word in ("GIVEN", "SECRET", "last"):
            running.send_line(word)
        answers = [running.read_line() for _ in range(3)]
    finally:
        running.kill()

    assert answers == ["to it", "SECRET", "last"]


def test_a_program_that_ends_by_itself_is_an_error_that_keeps_its_log(
    tmp_path: Path, watchdog: Watchdog, capfd: pytest.CaptureFixture[str]
) -> None:
    running = program(tmp_path, watchdog, _ECHOES)
    running.send_line("end")

    with pytest.raises(LabFailed, match="sample_program ended unexpectedly; its log is kept in ") as failed:
        running.read_line()
    running.kill()

    assert running.exit_code == 3
    kept = Path(str(failed.value).rpartition(" ")[2])
    assert kept.read_text() == "a line of the log\n"
    assert "    a line of the log" in capfd.readouterr().err
    kept.unlink()


def test_a_killed_program_takes_its_children_with_it(tmp_path: Path, watchdog: Watchdog) -> None:
    running = program(tmp_path, watchdog, _HAS_CHILDREN)
    children = [int(pid) for pid in running.read_line().split()]
    found = [child.pid for child in descendants(running.pid)]

    running.kill()

    assert found == children, "in the order in which they were started"
    assert running.exit_code == -signal.SIGKILL
    eventually_sync(lambda: not any(map(is_alive, children)))


def test_memory_and_cpu_time_are_those_of_the_whole_tree(tmp_path: Path, watchdog: Watchdog) -> None:
    running = program(tmp_path, watchdog, _USES_MEMORY)
    running.read_line()

    try:
        with PeakMemory([running.pid, os.getpid()]) as memory:
            alone, cpu = memory_bytes(running.pid), cpu_seconds(running.pid)
    finally:
        running.kill()

    assert alone > 50_000_000
    assert memory.peak >= memory.now > alone
    assert cpu > 0
    assert (memory_bytes(running.pid), cpu_seconds(running.pid)) == (0, 0.0)


def test_commands_have_a_log_each_and_an_api_that_can_be_read_and_changed(tmp_path: Path) -> None:
    with Commands(tmp_path / "home") as commands:
        first, second = (commands.start("upstream", "--port", "0") for _ in range(2))
        with closing(ApiControl(first.first_url())) as api:
            assert api.behave(error_rate=1.0)
            api.request("GET", "/orders/536365")
            stats = api.stats_by_id()
            without_ids = api.stats()
            assert api.reset()
            after = api.stats()
        second.first_url()  # until then, a signal would find no handler
        codes = [command.stop(60) for command in (first, second)]
        logs = [first.log.name, second.log.name]

    assert stats is not None
    assert without_ids is not None
    assert after is not None
    assert (stats.requests, stats.failures, stats.by_id) == (1, 1, {"536365": 1})
    assert (without_ids.requests, without_ids.by_id, after.requests) == (1, {}, 0)
    assert codes == [0, 0]
    assert logs == ["upstream.log", "upstream-2.log"]


def test_a_histogram_s_quantile_is_interpolated_within_its_bucket() -> None:
    scrape = Metrics.parse(
        "# HELP wait_seconds of a request\n"
        'wait_seconds_bucket{code="2xx",le="0.1"} 10\n'
        'wait_seconds_bucket{code="2xx",le="0.2"} 30\n'
        'wait_seconds_bucket{code="2xx",le="+Inf"} 40\n'
        'done_total{outcome="stored"} 3\n'
        'done_total{outcome="retried"} 4\n'
    )

    assert scrape.quantile(0.5, "wait_seconds", 'code="2xx"') == pytest.approx(0.15)
    assert scrape.quantile(1.0, "wait_seconds", 'code="2xx"') == 0.2
    assert scrape.quantile(0.5, "wait_seconds", 'code="5xx"') is None
    assert (scrape.total("done_total"), scrape.total("done_total", 'outcome="stored"')) == (7, 3)
