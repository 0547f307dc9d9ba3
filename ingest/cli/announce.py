"""Feeds a source of IDs to the producer, with progress, and reports what could not be taken in."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ingest.cli.common import say
from ingest.cli.found import UnreadableSource
from ingest.cli.invalid_lines import InvalidLines
from ingest.cli.sources import Source
from ingest.queue.producer import BATCH, Producer
from ingest.settings import Settings
from ingest.telemetry.logs import get_logger

_log = get_logger("enqueue")
_REPORT_EVERY = 5.0
# Where a rate is asked for.
_BATCHES_A_SECOND = 10


@dataclass(slots=True)
class Result:
    """What became of a source's IDs.

    Attributes:
        accepted: IDs that Redis has.
        invalid: lines without a valid ID.
        seconds: how long it took.
        error: why the source was not read to its end; what stands before that place is accepted. Else empty.
    """

    accepted: int = 0
    invalid: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def complete(self) -> bool:
        """Whether every line was taken in."""
        return not (self.invalid or self.error)

    def as_json(self) -> str:
        """One JSON object."""
        told = {"accepted": self.accepted, "invalid": self.invalid, "seconds": round(self.seconds, 3)}
        return json.dumps(told | ({"error": self.error} if self.error else {}))

    def as_line(self) -> str:
        """One line for people."""
        rate = f" ({self.accepted / self.seconds:,.0f}/s)" if self.seconds > 0 and self.accepted > BATCH else ""
        invalid = f", {self.invalid:,} invalid" if self.invalid else ""
        return f"{self.accepted:,} accepted{invalid} in {self.seconds:.2f} s{rate}"


async def announce(settings: Settings, source: Source, *, quiet: bool, rate: float | None = None) -> Result:
    """Enqueue all valid IDs of the source, batch by batch, whatever else is in it; at most `rate` of them a second.

    Where the source cannot be read any further, all that was read is accepted, and the result says why it ended.
    Interrupted, it has taken in a whole number of batches from the front.
    """
    result = Result()
    started = time.monotonic()
    with _Display(source, quiet=quiet) as display:
        url = settings.redis_url.get_secret_value()
        async with Producer.connect(
            url, settings.stream, backlog_limit=settings.backlog_limit, on_wait=display.say
        ) as producer:
            due: float | None = None
            size = BATCH if rate is None else max(1, min(BATCH, round(rate / _BATCHES_A_SECOND)))
            try:
                for batch, position in _batches(source, size, result, display):
                    result.accepted += await producer.enqueue(batch)
                    display.update(result, position)
                    if rate is not None:
                        now = time.monotonic()
                        # What was held up, by an outage say, is not made up for by a burst.
                        due = (now if due is None else max(due, now - 1.0)) + len(batch) / rate
                        await asyncio.sleep(due - now)
            except asyncio.CancelledError:
                display.say(f"stopped after {result.accepted:,} accepted; the next {size} may be in as well")
                raise
    result.seconds = time.monotonic() - started
    return result


def _batches(source: Source, size: int, result: Result, display: "_Display") -> Iterator[tuple[list[str], int]]:
    invalid = InvalidLines(source.name)
    batch: list[str] = []
    position = 0
    try:
        for found in source.read():
            position = found.position
            order_id = invalid.checked(found, display.say)
            result.invalid = invalid.count
            if order_id is not None:
                batch.append(order_id)
            if len(batch) == size:
                yield batch, position
                batch = []
    except UnreadableSource as error:
        if not position:
            raise
        result.error = str(error)
    if batch:
        yield batch, position


class _Display:
    """A progress bar on a terminal, log lines elsewhere."""

    def __init__(self, source: Source, *, quiet: bool) -> None:
        console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._quiet = quiet
        self._told = time.monotonic()
        if console.is_terminal and not quiet:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.fields[accepted]:,} taken in"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=source.size, accepted=0)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, line: str) -> None:
        """A line beside the progress."""
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            say(line)

    def update(self, result: Result, position: int) -> None:
        """Show how far it has come."""
        if self._bar:
            self._bar.update(self._task, completed=position, accepted=result.accepted)
        elif not self._quiet and time.monotonic() - self._told > _REPORT_EVERY:
            self._told = time.monotonic()
            _log.info("enqueueing", accepted=result.accepted, invalid=result.invalid)
