"""Lets the coverage gate trace only the measured packages, which takes twice the processor time of a test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

_MEASURED = {"ingest.domain", "ingest.flow"}
# Tests of other packages, and simulations of what shorter tests cover as well: for the gate, nothing is missing here.
_UNTRACED = {
    "test_dashboard",
    "test_dead_selection",
    "test_dead_table",
    "test_endpoint",
    "test_fleet_quota_pacing",
    "test_logs",
    "test_make",
    "test_mapping_fields",
    "test_mapping_files",
    "test_mapping_shops",
    "test_order_ids",
    "test_quota_scenarios",
    "test_rate_limit_headers",
    "test_responses",
    "test_settings",
    "test_shared_metrics",
}


def _gate() -> Coverage | None:
    """The running measurement of the gate, which covers only these packages."""
    running = Coverage.current()
    return running if running and set(running.get_option("run:source") or ()) == _MEASURED else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """In the process that only hands tests out there is nothing to measure."""
    if session.config.getoption("numprocesses", None) and (gate := _gate()):
        gate.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    gate = _gate() if item.path.stem in _UNTRACED else None
    if gate:
        gate.stop()
    try:
        return (yield)
    finally:
        if gate:
            gate.start()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without `.env`, and an environment without our variables."""
    for name in [name for name in os.environ if name.upper().startswith("INGEST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
