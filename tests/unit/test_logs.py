"""Logs: an event and its fields on stderr, from us and from libraries."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from odd_ids import ODD_IDS

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

OF_SOURCES = """
import asyncio
from ingest.telemetry.logs import bound_source, get_logger, setup_logs

setup_logs("json", "info")
log = get_logger("part")

async def child(event):
    log.info(event)

async def of_source(name, *events):
    with bound_source(name):
        asyncio.get_running_loop().call_later(0.01, log.info, "later") if name == "shop-de" else None
        async with asyncio.TaskGroup() as tasks:
            for event in events:
                tasks.create_task(child(event))

async def main():
    log.info("before")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(of_source("shop-de", "in_a_task"))
        tasks.create_task(of_source("shop-fr", "other"))
        tasks.create_task(of_source("", "unnamed"))
    await asyncio.sleep(0.05)
    log.info("after")

asyncio.run(main())
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


def test_a_terminal_shows_the_time_and_a_file_also_the_date() -> None:
    leader, follower = pty.openpty()
    done = subprocess.run([sys.executable, "-c", LOGGING, "console", "info"], stderr=follower, check=False, timeout=60)
    os.close(follower)
    shown = os.read(leader, 65536).decode()
    os.close(leader)

    assert done.returncode == 0
    assert re.match(r"(\x1b\[\d+m)*\d\d:\d\d:\d\d\.\d\d\d(\x1b\[0m)* \[", shown)
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d\d\d \[", logged("console", "info"))


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_an_order_id_is_one_value_on_one_line(log_format: str) -> None:
    program = (
        "import sys\nfrom odd_ids import ODD_IDS\nfrom ingest.telemetry.logs import get_logger, setup_logs\n"
        "setup_logs(sys.argv[1], 'info')\nfor each in (*ODD_IDS, 'a  [error] level=error x'):\n"
        "    get_logger('part').info('stored', order_id=each)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, log_format],
        capture_output=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    lines = done.stderr.decode().splitlines()

    assert len(lines) == len(ODD_IDS) + 1
    assert all(line.isprintable() for line in lines)
    if log_format == "json":
        assert [json.loads(line)["order_id"] for line in lines[:-1]] == [*ODD_IDS]
    else:
        assert lines[-1].endswith("order_id='a  [error] level=error x'")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_does_not_show_the_values_of_variables(log_format: str) -> None:
    text = logged(log_format, "info")

    assert "ZeroDivisionError" in text
    assert "Roe" not in text.replace('customer = "Jane Roe"', "")


def test_an_event_has_the_source_of_the_task_that_started_its_own_and_none_for_the_unnamed_source() -> None:
    done = subprocess.run([sys.executable, "-c", OF_SOURCES], capture_output=True, check=True, timeout=60)

    events = [json.loads(line) for line in done.stderr.decode().splitlines()]
    assert {event["event"]: event.get("source") for event in events} == {
        "before": None,
        "in_a_task": "shop-de",
        "later": "shop-de",
        "other": "shop-fr",
        "unnamed": None,
        "after": None,
    }
