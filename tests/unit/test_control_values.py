"""Controls apply to the right sources and processes, for as long as they were set."""

from datetime import UTC, datetime, timedelta

import pytest

from ingest.domain.operating.controls import (
    Controls,
    Drain,
    InvalidControl,
    LevelChange,
    Pause,
    checked_duration,
    checked_limits,
    checked_reason,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_pause_ends_by_itself() -> None:
    controls = Controls(pauses={"shop-de": Pause(since=NOW, until=NOW + timedelta(seconds=10), by="me")})

    assert controls.pause_of("shop-de", NOW + timedelta(seconds=9)) is not None
    assert controls.pause_of("shop-de", NOW + timedelta(seconds=10)) is None
    assert controls.pause_of("shop-fr", NOW) is None


@pytest.mark.parametrize(
    ("target", "drained"),
    [
        ("web-1", ["web-1-1f0c22ab-0", "web-1-1f0c22ab-1", "web-1-5a5a5a5a-0"]),
        ("web-1-1f0c22ab", ["web-1-1f0c22ab-0", "web-1-1f0c22ab-1"]),
        ("web-1-1f0c22ab-1", ["web-1-1f0c22ab-1"]),
        ("web", []),
    ],
)
def test_a_drain_names_a_host_a_command_or_a_process(target: str, drained: list[str]) -> None:
    controls = Controls(drains={target: Drain(since=NOW, by="me")})
    processes = ["web-1-1f0c22ab-0", "web-1-1f0c22ab-1", "web-1-5a5a5a5a-0", "web-12-1f0c22ab-0", "other"]

    assert [each for each in processes if controls.drain_of(each)] == drained


def test_a_log_level_of_a_host_takes_precedence() -> None:
    debug, error = (LevelChange(level=level, since=NOW, by="me") for level in ("debug", "error"))
    controls = Controls(log_levels={"web1": debug, "": error})

    assert controls.log_level_of("web1-1f0c22ab-0") == "debug"
    assert controls.log_level_of("web2-1f0c22ab-0") == "error"
    assert Controls().log_level_of("web2-1f0c22ab-0") is None


def test_impossible_values_are_rejected() -> None:
    for check in (
        lambda: checked_duration(0.0),
        lambda: checked_duration(400 * 86_400.0),
        lambda: checked_reason("two\nlines"),
        lambda: checked_reason("x" * 201),
        lambda: checked_limits(None, None),
        lambda: checked_limits(0, None),
        lambda: checked_limits(None, 0.0),
    ):
        with pytest.raises(InvalidControl):
            check()
