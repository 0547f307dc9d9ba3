"""Records the history of the deliveries of one process, for operators.

A stored order is recorded by the statement that stores it. Other outcomes are gathered in memory and written about once a second, because
no order waits for them. If the process dies here, or PostgreSQL is unavailable for long, some of them are lost. No order is.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.entry_fields import FORMER_ORIGIN, ORIGIN, REPLAYED_AT
from ingest.domain.errors import RowsRefused, Unavailable, UserError
from ingest.domain.orders.order_history import DeliveryNote, HistoryEvent, RecordedEvent
from ingest.flow.availability import AvailabilityLog, until_available, until_ready
from ingest.flow.ports import History
from ingest.flow.ticks import sleep_to_tick
from ingest.telemetry.logs import get_logger

_log = get_logger("history")
_WRITE_EVERY = 1.0
_AT_ONCE = 500
# About 5 MB. More would be waiting only while PostgreSQL is unavailable.
_MOST_WAITING = 10_000
_DELETE_EVERY = 60.0
# Deleting leaves most of the time of PostgreSQL to the batches of orders.
_DELETE_PAUSE = 0.2
_LAST_WAIT = 1.0
_LONGEST_ORIGIN = 100
# Milliseconds until the year 2286.
_MILLISECOND_DIGITS = 13


class Recorder:
    """The history of the deliveries of one source in one process.

    Args:
        history: where it is kept.
        worker: the name of this process.
        keep: seconds for which events are kept.
        leads: whether this process deletes old events.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        history: History,
        worker: str,
        keep: float,
        leads: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.availability = AvailabilityLog("postgres")
        self._history = history
        self._worker = _ascii(worker.encode(errors="replace"))
        self._keep = keep
        self._leads = leads
        self._clock = clock
        # Each with the time at which it happened.
        self._waiting: deque[tuple[float, RecordedEvent]] = deque()
        self._dropped = 0

    def since(self, started_at: float) -> float:
        """Return the seconds since a request began, by the clock of `Exchange.started_at`."""
        return self._clock() - started_at

    def note(self, delivery: Delivery, took: float | None) -> DeliveryNote:
        """Return the facts about a delivery that its history keeps. Texts of other programs are in ASCII, which every database can store."""
        fields = delivery.fields
        origin = fields.get(ORIGIN) or fields.get(FORMER_ORIGIN)
        replayed_at = fields.get(REPLAYED_AT, b"")
        is_replayed = replayed_at.isdigit() and len(replayed_at) <= _MILLISECOND_DIGITS
        return DeliveryNote(
            delivery.order_id or "",
            delivery.attempt,
            delivery.enqueued_at,
            _ascii(origin) if origin else None,
            int(replayed_at) / 1000 if is_replayed else None,
            self._worker,
            took,
        )

    def add(
        self,
        delivery: Delivery,
        event: HistoryEvent,
        took: float | None,
        *,
        after: float | None = None,
        reason: str | None = None,
        error: str | None = None,
    ) -> None:
        """Record an outcome that stores no order. An entry without a valid ID belongs to no order."""
        if delivery.order_id is None:
            return
        if len(self._waiting) >= _MOST_WAITING:
            self._dropped += 1
            return
        text = None if error is None else _ascii(error.encode(errors="replace"))
        recorded = RecordedEvent(self.note(delivery, took), event, 0.0, after, reason, text)
        self._waiting.append((self._clock(), recorded))

    async def run(self) -> None:
        """Write and delete until cancelled. Gathered events are then written, if that is possible immediately."""
        try:
            async with asyncio.TaskGroup() as parts:
                parts.create_task(self._keep_writing())
                parts.create_task(self._keep_deleting())
        finally:
            with suppress(Unavailable, RowsRefused, TimeoutError):
                async with asyncio.timeout(_LAST_WAIT):
                    while self._waiting:
                        await self._write()

    def close(self) -> None:
        """See `FleetPart`. Orders in flight are still recorded."""

    async def _keep_writing(self) -> None:
        while True:
            await sleep_to_tick(_WRITE_EVERY)
            while self._waiting:
                await until_available(self.availability, self._write)
            if self._dropped:
                _log.warning("history_incomplete", events=self._dropped)
                self._dropped = 0

    async def _write(self) -> None:
        """Write the oldest events. They stay in memory until they are committed."""
        now = self._clock()
        some = list(islice(self._waiting, _AT_ONCE))
        try:
            await self._history.add([_aged(event, now - at) for at, event in some])
        except RowsRefused as error:
            # A constraint or a trigger on the table. No order may wait for it.
            _log.error("history_refused", events=len(some), error=str(error))
        for _ in some:
            self._waiting.popleft()

    async def _keep_deleting(self) -> None:
        logged = ""
        while True:
            await sleep_to_tick(_DELETE_EVERY)
            try:
                await self._delete()
            except UserError as error:
                # The next round tries again.
                if str(error) != logged:
                    _log.error("history_not_deleted", error=str(error))
                logged = str(error)
            else:
                logged = ""

    async def _delete(self) -> None:
        is_done = False
        while self._leads() and not is_done:
            is_done = await until_ready("postgres", self._history.delete_old, self._keep)
            await asyncio.sleep(_DELETE_PAUSE)


def _aged(event: RecordedEvent, age: float) -> RecordedEvent:
    return RecordedEvent(event.note, event.event, max(0.0, age), event.after, event.reason, event.error)


def _ascii(raw: bytes) -> str:
    return raw[: 5 * _LONGEST_ORIGIN].decode("ascii", "backslashreplace").replace("\0", "\\x00")
