"""What `ingest doctor` finds in settings that are valid one by one, and in the resources of this machine."""

from typing import Any

import pytest

from ingest.operations.doctor.finding import Finding, Level
from ingest.operations.doctor.settings import Machine, findings
from ingest.settings import Settings

LARGE = Machine(memory=16_000_000_000, open_files=None)


def found(host: Machine = LARGE, *unknown: str, **settings: Any) -> list[Finding]:
    return list(findings(Settings.model_construct(**settings), unknown, host))


def test_the_defaults_contradict_nothing_on_a_small_machine() -> None:
    small = Machine(memory=1_000_000_000, open_files=1024)

    assert {finding.level for finding in found(small)} == {Level.OK}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"upstream_connect_timeout": 60.0}, "INGEST_UPSTREAM_CONNECT_TIMEOUT (60 s) is longer"),
        ({"upstream_read_timeout": 31.0}, "INGEST_UPSTREAM_READ_TIMEOUT (31 s) is longer"),
        ({"claim_idle": 8.0}, "INGEST_CLAIM_IDLE (8 s)"),
        ({"loop_block_warning": 6.0}, "INGEST_LOOP_BLOCK_WARNING (6 s)"),
        ({"upstream_burst": 10}, "INGEST_UPSTREAM_BURST has no effect"),
        ({"batch_bytes": 1_000_000}, "is larger than INGEST_BATCH_BYTES"),
        ({"api_metrics_port": 9464}, "INGEST_API_METRICS_PORT and INGEST_METRICS_PORT are both 9464"),
    ],
)
def test_settings_that_contradict_each_other_are_a_warning(settings: dict[str, float], named: str) -> None:
    (finding,) = [finding for finding in found(**settings) if finding.level is not Level.OK]

    assert finding.level is Level.WARNING
    assert named in finding.what
    assert finding.advice


def test_ports_that_are_disabled_are_not_the_same() -> None:
    assert {finding.level for finding in found(metrics_port=0, api_metrics_port=0)} == {Level.OK}


def test_more_orders_in_flight_than_files_may_be_open_are_a_fault() -> None:
    (finding,) = [finding for finding in found(Machine(None, 1024), concurrency=1000) if finding.level is Level.ERROR]

    assert finding.what == "a process may open 1,024 files, and needs up to 1,128"


def test_memory_that_is_exceeded_is_a_fault_and_that_may_be_exceeded_a_warning() -> None:
    (fault,) = [finding for finding in found(Machine(64_000_000, None)) if finding.level is Level.ERROR]
    (warning,) = [finding for finding in found(Machine(400_000_000, None)) if finding.level is Level.WARNING]

    assert "with small documents, and 64 MB are available" in fault.what
    assert "with large documents, and 400 MB are available" in warning.what


def test_unknown_settings_are_warnings() -> None:
    line = "INGEST_CONCURENCY: unknown setting; did you mean INGEST_CONCURRENCY?"

    assert [finding.what for finding in found(LARGE, line) if finding.level is Level.WARNING] == [line]


def test_this_machine_has_memory() -> None:
    here = Machine.here()

    assert here.memory is not None
    assert here.memory > 10_000_000
