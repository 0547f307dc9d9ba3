"""Logs: an event and its fields on stderr, from us and from libraries."""

import json
import subprocess
import sys

import pytest

LOGGING = """
import logging, sys
from ingest.telemetry.logs import get_logger, setup_logs

setup_logs(sys.argv[1], sys.argv[2])
log = get_logger("part")
log.debug("too_fine", n=0)
log.info("started", n=1, text="two\\nlines")
log.error("broken", error="no")
logging.getLogger("library").info("chatter")
logging.getLogger("library").warning("careful: %s", "hot")
customer = "Jane Roe"
try:
    1 / 0
except ZeroDivisionError:
    log.exception("failed")
"""


def logged(log_format: str, level: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING, log_format, level], capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b""
    return done.stderr.decode()


def test_json_logs_are_one_object_a_line_with_event_level_time_and_fields() -> None:
    lines = [json.loads(line) for line in logged("json", "info").splitlines()]

    assert [line["event"] for line in lines] == ["started", "broken", "careful: hot", "failed"]
    assert [line["level"] for line in lines] == ["info", "error", "warning", "error"]
    assert lines[0]["component"] == "part"
    assert lines[0]["text"] == "two\nlines"
    assert lines[2]["library"] == "library"
    assert all(line["timestamp"].endswith("Z") for line in lines)


@pytest.mark.parametrize(("level", "events"), [("debug", 5), ("info", 4), ("warning", 3), ("error", 2)])
def test_events_below_the_level_are_omitted(level: str, events: int) -> None:
    assert len(logged("json", level).splitlines()) == events


def test_console_logs_are_readable() -> None:
    text = logged("console", "info")

    assert "started" in text
    assert "careful: hot" in text
    assert "\x1b[" not in text  # no colours into a file


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_does_not_show_the_values_of_variables(log_format: str) -> None:
    text = logged(log_format, "info")

    assert "ZeroDivisionError" in text
    assert "Roe" not in text.replace('customer = "Jane Roe"', "")
