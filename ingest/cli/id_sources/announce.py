"""Enqueues the IDs of a source, with progress, and reports rejected ones."""

import asyncio
import json
import sys
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

from ingest.cli.id_sources.found import UnreadableSource
from ingest.cli.id_sources.invalid_lines import InvalidLines
from ingest.cli.id_sources.sources import IdSource
from ingest.cli.invocation import say
from ingest.cli.terminal.width import wrapped
from ingest.process.interrupt import interrupting_reads
from ingest.queue.produce.producer import BATCH, Producer
from ingest.settings import Settings
from ingest.telemetry.logs import get_logger

_log = get_logger("enqueue")
_REPORT_EVERY = 5.0
# Where a rate is asked for.
_BATCHES_A_SECOND = 10

_Batch = tuple[list[str], int]
"""IDs, and the position in the source after them."""


@dataclass(slots=True)
class EnqueueResult:
    """The result of announcing a source's IDs.

    Attributes:
        accepted: IDs that Redis has.
        invalid: lines without a valid ID.
        seconds: how long it took.
        error: why the source was not read to its end. What stands before that place is accepted. Otherwise empty.
    """

    accepted: int = 0
    invalid: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def complete(self) -> bool:
        """Whether every line was accepted."""
        return not (self.invalid or self.error)

    def as_json(self) -> str:
        """One JSON object."""
        fields = {"accepted": self.accepted, "invalid": self.invalid, "seconds": round(self.seconds, 3)}
        return json.dumps(fields | ({"error": self.error} if self.error else {}))

    def as_line(self) -> str:
        """One line for people."""
        rate = f" ({self.accepted / self.seconds:,.0f}/s)" if self.seconds > 0 and self.accepted > BATCH else ""
        invalid = f", {self.invalid:,} invalid" if self.invalid else ""
        return f"{self.accepted:,} accepted{invalid} in {self.seconds:.2f} s{rate}"


async def announce(
    settings: Settings, source: IdSource, *, quiet: bool, rate: float | None = None, express: bool = False
) -> EnqueueResult:
    """Enqueue all valid IDs of the source, batch by batch, up to `rate` of them per second.

    Where the source cannot be read any further, all that was read is accepted, and the result says why it ended.
    Interrupted, it has announced a whole number of batches from the front.
    """
    result = EnqueueResult()
    started = time.monotonic()
    pace = _Pace(rate)
    with _Display(source, quiet=quiet) as display:
        url = settings.redis_url.get_secret_value()
        async with Producer.connect(
            url, settings.stream, backlog_limit=settings.backlog_limit, on_wait=display.say
        ) as producer:
            try:
                batches = _batches(source, pace.batch, result, display)
                while (found := _next(batches)) is not None:
                    batch, position = found
                    result.accepted += await producer.enqueue(batch, express=express)
                    display.update(result, position)
                    await pace.keep(len(batch))
            except asyncio.CancelledError:
                display.say(f"stopped after {result.accepted:,} accepted; the next {pace.batch} may be in as well")
                raise
            except KeyboardInterrupt:
                # While it was reading.
                display.say(f"stopped after {result.accepted:,} accepted")
                raise
    result.seconds = time.monotonic() - started
    return result


class _Pace:
    """Keeps to a rate, if there is one."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due: float | None = None
        self.batch = BATCH if rate is None else max(1, min(BATCH, round(rate / _BATCHES_A_SECOND)))

    async def keep(self, count: int) -> None:
        """Wait until the next batch is due, after one of `count` IDs."""
        if self._rate is None:
            return
        now = time.monotonic()
        # After a delay, such as an outage, no burst makes up for it.
        self._due = (now if self._due is None else max(self._due, now - 1.0)) + count / self._rate
        await asyncio.sleep(self._due - now)


def _next(batches: Iterator[_Batch]) -> _Batch | None:
    with interrupting_reads():
        return next(batches, None)


def _batches(source: IdSource, size: int, result: EnqueueResult, display: "_Display") -> Iterator[_Batch]:
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

    def __init__(self, source: IdSource, *, quiet: bool) -> None:
        console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._quiet = quiet
        self._reported_at = time.monotonic()
        if console.is_terminal and not quiet:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.fields[accepted]:,} accepted"),
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
            self._bar.console.print(wrapped(line, sys.stderr), highlight=False, markup=False, soft_wrap=True)
        else:
            say(line)

    def update(self, result: EnqueueResult, position: int) -> None:
        """Show how far it has come."""
        if self._bar:
            self._bar.update(self._task, completed=position, accepted=result.accepted)
        elif not self._quiet and time.monotonic() - self._reported_at > _REPORT_EVERY:
            self._reported_at = time.monotonic()
            _log.info("enqueueing", accepted=result.accepted, invalid=result.invalid)
