"""Enqueues the IDs of a source, with progress, and reports rejected ones."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.progress import TaskProgressColumn

from ingest.cli.invocation import actor
from ingest.cli.orders.id_sources.found import InvalidLines, UnreadableSource
from ingest.cli.orders.id_sources.sources import IdSource
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import UserError
from ingest.domain.source_name import deployment_of
from ingest.operations.audit import audited_control
from ingest.operations.control.producer_admission import ProducerAdmission
from ingest.operations.declared import DECLARED
from ingest.process.interrupt import interrupting_reads
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.produce.producer import BATCH, Producer
from ingest.queue.produce.producer_errors import SourcePaused
from ingest.queue.redis.connection import control_client
from ingest.settings import Settings
from ingest.store.audit import AuditLog
from ingest.store.connections.pool import Pool
from ingest.telemetry.logs import get_logger

_log = get_logger("enqueue")

# With a rate.
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
        """One line for the terminal."""
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
    with _Display(source, result, quiet=quiet) as display:
        url = settings.redis_url.get_secret_value()
        await _require_admission(url, settings)
        origin, last = actor(), ""
        async with (
            Producer.connect(
                url,
                settings.stream,
                partitions=settings.partitions,
                backlog_limit=settings.backlog_limit,
                on_wait=display.say,
            ) as producer,
            Pool.open(settings.postgres_dsn.get_secret_value(), size=1) as pool,
            audited_control(
                AuditLog(pool, settings.source),
                origin,
                DECLARED["orders.announce"],
                {"from": source.name},
                on_unrecorded=display.say,
            ) as operation,
        ):
            batch: list[str] = []
            try:
                batches = _batches(source, pace.batch, result, display)
                while (found := _next(batches)) is not None:
                    batch, position = found
                    announced = [Announcement(order_id, origin=origin) for order_id in batch]
                    result.accepted += await producer.enqueue(announced, express=express)
                    operation.count = result.accepted
                    last, batch = batch[-1], []
                    display.update(position)
                    await pace.keep(len(announced))
            except (asyncio.CancelledError, KeyboardInterrupt):
                display.say(_so_far(result.accepted, last, batch))
                raise
            except UserError:
                if result.accepted:
                    display.say(_so_far(result.accepted, last, batch))
                raise
    result.seconds = time.monotonic() - started
    return result


def _so_far(accepted: int, last: str, uncertain: Sequence[str]) -> str:
    """The orders that are in the queue, and those that may be, because Redis has not confirmed them."""
    until = f", up to {last!r}" if last else ""
    more = f"; the next {len(uncertain):,}, up to {uncertain[-1]!r}, may be in as well" if uncertain else ""
    return f"stopped after {accepted:,} accepted{until}{more}; the others are not in the queue"


async def _require_admission(url: str, settings: Settings) -> None:
    deployment = deployment_of(settings.stream, settings.source)
    async with control_client(url) as client:
        try:
            await ProducerAdmission(ControlRecord(client, deployment, settings.group)).admit(settings.source)
        except SourcePaused as error:
            raise UserError(str(error)) from error


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


class _Display(ProgressDisplay):
    """The number of accepted IDs, and the share of the source, whose size may be in bytes."""

    amount = TaskProgressColumn()

    def __init__(self, source: IdSource, result: EnqueueResult, *, quiet: bool) -> None:
        super().__init__("", source.size, quiet=quiet)
        self._result = result

    def describe(self) -> str:
        """The number of accepted IDs."""
        return f"{self._result.accepted:,} accepted"

    def log(self, done: int) -> None:
        """Log the numbers of accepted and of invalid IDs."""
        del done
        _log.info("enqueueing", accepted=self._result.accepted, invalid=self._result.invalid)
