"""Moves the rows of an outbox to the queue. Each committed row is enqueued once, in row order.

A batch is enqueued and deleted in one transaction of PostgreSQL, each row under its own idempotency key. If the process dies here, or a
server's response is lost, rows are enqueued again, and Redis only confirms them.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain, groupby
from typing import Protocol

from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT, Announcement, InvalidAnnouncement
from ingest.domain.errors import QueueUnavailable, StoreUnavailable, Unavailable, UserError
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.domain.source_name import UNNAMED
from ingest.queue.produce.producer_errors import BacklogFull, IdempotencyKeyReused
from ingest.queue.produce.submission import OVERHEAD, Orders, most_in_a_step, parts_of
from ingest.store.outbox.outbox import Outbox, OutboxOrder, OutboxRow
from ingest.telemetry.logs import get_logger
from ingest.telemetry.relay_metrics import RelayMetrics

_log = get_logger("relay")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# Counting the rows takes PostgreSQL up to 0.1 s.
_COUNT_EVERY = 5.0
# Seconds for the steps of one transaction. PostgreSQL ends a transaction after a minute, and then all of it is enqueued again.
_LONGEST_ROUND = 10.0

OpenOutbox = Callable[[], AbstractAsyncContextManager[Outbox]]
# None: the row is queued. A text: why it is rejected. `Unavailable`: why it has to wait.
_Outcome = str | Unavailable | None


class RelayTarget(Protocol):
    """Enqueues orders. See `Producer.try_enqueue`."""

    async def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        """Enqueue orders, or raise `Unavailable`."""


class Relay:
    """Relays one outbox.

    Args:
        backlog_limit: limit of the announcer, or 0 if unlimited.
        batch: rows in a transaction.
        poll_interval: seconds between two polls of an outbox that sends no notification.
    """

    def __init__(
        self,
        open_outbox: OpenOutbox,
        announcer: RelayTarget,
        *,
        backlog_limit: int,
        batch: int,
        poll_interval: float,
        metrics: RelayMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open = open_outbox
        self._announcer = announcer
        self._backlog_limit = backlog_limit
        self._batch = batch
        self._poll_interval = poll_interval
        self._metrics = metrics
        self._clock = clock
        self._has_been_open = False
        self._problem = ""
        self._failures = 0
        self._counted_at = 0.0
        self._is_counted = True

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until stopped, and finish the current batch. Waits while a server is unavailable.

        Raises:
            UserError: PostgreSQL denies access from the start.
        """
        while not stop.is_set():
            try:
                async with self._open() as outbox:
                    if not outbox.is_notified and not self._has_been_open:
                        _log.info("outbox_polled", interval=self._poll_interval)
                    await self._relay(outbox, stop)
            except StoreUnavailable as error:
                if isinstance(error, UserError) and not self._has_been_open:
                    raise
                await self._wait_for(error, stop)

    async def _relay(self, outbox: Outbox, stop: asyncio.Event) -> None:
        while not stop.is_set():
            announced = await outbox.relay(self._batch, self._announce)
            self._has_been_open = True
            if announced is None:
                continue
            self._note(announced)
            if announced.unavailable is not None:
                await self._count(outbox)
                await self._wait_for(announced.unavailable, stop)
                continue
            self._available()
            if announced.done or announced.refused:
                await self._count(outbox)
            else:
                self._metrics.pending.set(0)
                self._metrics.lag.set(0)
                await _first_of(stop, outbox.changed, self._poll_interval)

    async def _announce(self, rows: Sequence[OutboxRow]) -> OutboxOrder:
        done, refused = [], {}
        unavailable = None
        for row, outcome in await self._announce_lanes(rows):
            if outcome is None:
                done.append(row.number)
            elif isinstance(outcome, str):
                refused[row.number] = outcome
            else:
                unavailable = unavailable or outcome
        return OutboxOrder(done, refused, unavailable)

    async def _announce_lanes(self, rows: Sequence[OutboxRow]) -> list[tuple[OutboxRow, _Outcome]]:
        """Enqueue the rows of both lanes concurrently, or one after the other if an order is in both.

        Of two documents of an order, the one accepted later counts as newer, so they must be accepted in row order.
        """
        main, express = ([row for row in rows if row.express is is_express] for is_express in (False, True))
        if {row.order_id for row in main}.isdisjoint({row.order_id for row in express}):
            return list(chain(*await asyncio.gather(self._announce_lane(main), self._announce_lane(express))))
        outcomes: list[tuple[OutboxRow, _Outcome]] = []
        for _, part in groupby(rows, key=lambda row: row.express):
            outcomes += await self._announce_lane(list(part))
            if any(isinstance(outcome, Unavailable) for _, outcome in outcomes):
                break
        return outcomes

    async def _announce_lane(self, rows: Sequence[OutboxRow]) -> list[tuple[OutboxRow, _Outcome]]:
        """Enqueue rows in their order, because a producer sends concurrent calls in the order of their arrival.

        It stops after a step in which a row had to wait, because a later step might find space again and overtake that row.
        """
        outcomes: list[tuple[OutboxRow, _Outcome]] = []
        ends = self._clock() + _LONGEST_ROUND
        for step in self._steps(rows):
            found = await asyncio.gather(*map(self._announce_row, step))
            outcomes += zip(step, found, strict=True)
            if self._clock() >= ends or any(isinstance(outcome, Unavailable) for outcome in found):
                break
        return outcomes

    def _steps(self, rows: Sequence[OutboxRow]) -> Iterable[Sequence[OutboxRow]]:
        """Split rows into steps that are enqueued together. Without a backlog limit, all rows wait for one write to the disk."""
        if not self._backlog_limit:
            return [rows]
        return parts_of(rows, most_in_a_step(self._backlog_limit), lambda row: OVERHEAD + row.document_bytes)

    async def _announce_row(self, row: OutboxRow) -> _Outcome:
        """Enqueue a row if possible."""
        if row.announcement is None:
            # With one key for all such rows, they would count as duplicates and be deleted.
            return "announcement is null: omit it, the column has a default"
        if row.source:
            return "source: this relay enqueues orders of the unnamed source"
        try:
            await self._announcer.try_enqueue(
                _order(row), idempotency_key=f"outbox:{row.announcement}", express=row.express
            )
        except (InvalidOrderId, InvalidAnnouncement) as error:
            return str(error)
        except IdempotencyKeyReused:
            return "the row was changed after it was queued: add a new row instead"
        except (BacklogFull, QueueUnavailable) as error:
            return error
        return None

    def _note(self, announced: OutboxOrder) -> None:
        rows = self._metrics.rows[UNNAMED]
        rows["announced"].inc(len(announced.done))
        rows["refused"].inc(len(announced.refused))
        if announced.refused:
            # The reasons are in the rows and not in the log, because an invalid order ID may be any text.
            _log.error("outbox_rows_refused", rows=len(announced.refused), first=min(announced.refused))

    async def _count(self, outbox: Outbox) -> None:
        now = self._clock()
        if now - self._counted_at >= _COUNT_EVERY:
            try:
                backlog = await outbox.backlog()
            except StoreUnavailable as error:
                # Relaying continues. If the connection is lost, the next batch fails.
                self._counted_at = self._clock()
                if self._is_counted:
                    self._is_counted = False
                    _log.warning("outbox_not_counted", error=str(error))
                return
            self._counted_at = self._clock()
            self._is_counted = True
            self._metrics.pending.set(backlog.rows)
            self._metrics.lag.set(backlog.oldest_age)

    async def _wait_for(self, error: Unavailable, stop: asyncio.Event) -> None:
        """Pause. Each problem is logged once."""
        if (problem := f"{type(error).__name__} {error.server}") != self._problem:
            self._problem = problem
            log = _log.error if isinstance(error, UserError) else _log.warning
            log("relay_waits", server=error.server, error=str(error))
        self._failures += 1
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10))
        retry_after = error.retry_after if isinstance(error, BacklogFull | QueueUnavailable) else 0.0
        pause = min(retry_after, _LONGEST_PAUSE) + random.uniform(0, longest)  # noqa: S311  spreads the retries of relays
        await _first_of(stop, None, pause)

    def _available(self) -> None:
        if self._problem:
            _log.info("relay_resumed")
        self._problem, self._failures = "", 0


def _order(row: OutboxRow) -> str | Announcement:
    if not row.document_bytes:
        return parse_order_id(row.order_id)
    if row.document is None:
        raise InvalidAnnouncement(
            f"the document is {row.document_bytes:,} bytes long, and the limit is {DOCUMENT_LIMIT:,}"
        )
    return Announcement(row.order_id, document=row.document)


async def _first_of(stop: asyncio.Event, changed: asyncio.Event | None, seconds: float) -> None:
    """Return when one of the events is set, or the time has passed."""
    waiting = [asyncio.create_task(event.wait()) for event in (stop, changed) if event is not None]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
