"""A circuit's report to the queue, on which no other behaviour depends."""

import asyncio
from contextlib import suppress
from typing import Any, cast

from support import eventually

from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.outage import Outage
from ingest.flow.outage_report import OutageReport


class Told:
    """A queue that only takes reports of circuits and is unavailable for the first N calls."""

    def __init__(self, unavailable: int = 0) -> None:
        self.unavailable = unavailable
        self.asked = 0
        self.told: list[Outage | None] = []

    async def report_outage(self, circuit: Outage | None, lifetime: float) -> None:
        assert lifetime > 0
        self.asked += 1
        if self.asked <= self.unavailable:
            raise QueueUnavailable("unavailable")
        self.told.append(circuit)


class Switched:
    """A circuit that opens and closes as the test sets it."""

    is_unproven = False

    def __init__(self) -> None:
        self.error = ""
        self.opened, self.closed = asyncio.Event(), asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self.opened.is_set()

    def change(self, error: str | None) -> None:
        before, after = (self.opened, self.closed) if error is None else (self.closed, self.opened)
        before.clear()
        after.set()
        self.error = error or ""


async def told(queue: Told, *notes: str | None) -> list[Outage | None]:
    """The reports to the queue at the start and after each note."""
    circuit = Switched()
    report = OutageReport(cast("Any", queue), cast("Any", circuit), lambda: 1_700_000_000.0)
    running = asyncio.create_task(report.run())

    await eventually(lambda: queue.asked >= 1)
    for number, note in enumerate(notes, start=2):
        circuit.change(note)
        await eventually(lambda times=number: queue.asked >= times)  # type: ignore[misc]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return queue.told


async def test_opening_and_closing_are_told_and_at_the_start_that_it_is_closed() -> None:
    opened = Outage(1_700_000_000.0, "HTTP 401")

    assert await told(Told(), "HTTP 401", None) == [None, opened, None]


async def test_a_queue_that_is_unavailable_is_told_the_latest_when_it_is_back() -> None:
    assert await told(Told(unavailable=3), "HTTP 401", None, "HTTP 500") == [Outage(1_700_000_000.0, "HTTP 500")]


async def test_an_error_is_told_in_one_short_line_without_credentials() -> None:
    error = "curl 5: Unsupported proxy\n'http://u:s3cr3t@p:1'" + " and so on" * 50

    [_, circuit] = await told(Told(), error)

    assert circuit is not None
    assert circuit.error.startswith("curl 5: Unsupported proxy 'http://***@p:1' and so on")
    assert len(circuit.error) == 200
