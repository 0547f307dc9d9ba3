"""Moves the rows of an outbox to the queues of their sources. Each committed row is enqueued once, in row order.

A batch is enqueued and deleted in one transaction of PostgreSQL, each row under its own idempotency key. If the process dies here, or a
server's response is lost, rows are enqueued again, and Redis only confirms them.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from ingest.domain.errors import QueueUnavailable, StoreUnavailable, Unavailable, UserError
from ingest.domain.exponential_pause import exponential_pause
from ingest.operations.relay.source_queues import SourceQueues
from ingest.queue.produce.producer_errors import BacklogFull
from ingest.store.outbox.outbox import Outbox, OutboxBacklog, OutboxOrder, OutboxRow
from ingest.telemetry.logs import get_logger
from ingest.telemetry.relay_metrics import RelayMetrics

_log = get_logger("relay")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# Counting the rows takes PostgreSQL up to 0.1 s.
_COUNT_EVERY = 5.0

OpenOutbox = Callable[[], AbstractAsyncContextManager[Outbox]]


class Relay:
    """Relays one outbox.

    Args:
        open_outbox: opens the outbox.
        queues: of the sources.
        batch: rows in a transaction.
        poll_interval: seconds between two polls of an outbox that sends no notification.
    """

    def __init__(
        self,
        open_outbox: OpenOutbox,
        queues: SourceQueues,
        *,
        batch: int,
        poll_interval: float,
        metrics: RelayMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open = open_outbox
        self._queues = queues
        self._batch = batch
        self._poll_interval = poll_interval
        self._metrics = metrics
        self._clock = clock
        self._has_been_open = False
        self._problem = ""
        self._failures = 0
        self._counted_at = 0.0
        self._is_counted = True
        # Sources whose full queue has been logged.
        self._full: set[str] = set()
        # An unknown source of rows at the last count.
        self._unknown: str | None = None

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
            sources: dict[int, str] = {}
            announce = partial(self._announce, sources)
            announced = await outbox.relay(self._batch, announce, self._queues.names_with_room())
            self._has_been_open = True
            if announced is None:
                continue
            self._note(announced, sources)
            if announced.unavailable is not None:
                await self._count(outbox)
                await self._wait_for(announced.unavailable, stop)
                self._queues.retry_all()
                continue
            self._available()
            await self._count(outbox)
            if not announced.done and not announced.refused:
                await self._wait_for_rows(outbox, stop)

    async def _wait_for_rows(self, outbox: Outbox, stop: asyncio.Event) -> None:
        """Wait until there may be rows to move."""
        next_retry = self._queues.next_retry()
        if next_retry is None and self._unknown is None:
            self._metrics.pending.set(0)
            self._metrics.lag.set(0)
        seconds = self._poll_interval if next_retry is None else min(next_retry, self._poll_interval)
        await _first_of(stop, outbox.changed, seconds)

    async def _announce(self, sources: dict[int, str], rows: Sequence[OutboxRow]) -> OutboxOrder:
        """Enqueue rows, the sources concurrently, and record the source of each row by its number."""
        of_sources: dict[str, list[OutboxRow]] = {}
        for row in rows:
            sources[row.number] = source = self._queues.source_of(row.source)
            of_sources.setdefault(source, []).append(row)
        enqueued = await asyncio.gather(*(self._queues.enqueuer(name).enqueue(of_sources[name]) for name in of_sources))
        done, refused = [], {}
        unavailable = None
        for source, outcomes in zip(of_sources, enqueued, strict=True):
            for row, outcome in outcomes:
                if outcome is None:
                    done.append(row.number)
                elif isinstance(outcome, str):
                    refused[row.number] = outcome
                elif not isinstance(outcome, BacklogFull):
                    unavailable = unavailable or outcome
            self._note_backlog(source, [outcome for _, outcome in outcomes if isinstance(outcome, BacklogFull)])
        if unavailable is None and self._queues.are_all_full():
            unavailable = next(
                outcome for outcomes in enqueued for _, outcome in outcomes if isinstance(outcome, BacklogFull)
            )
        return OutboxOrder(done, refused, unavailable)

    def _note_backlog(self, source: str, full: Sequence[BacklogFull]) -> None:
        """Leave the rows of a source whose queue is full, while there are other sources."""
        if not full:
            self._full.discard(source)
            return
        self._queues.note_full(source, min(full[0].retry_after, _LONGEST_PAUSE))
        if source not in self._full and not self._queues.are_all_full():
            self._full.add(source)
            _log.warning("source_waits", source=source, error=str(full[0]))

    def _note(self, announced: OutboxOrder, sources: Mapping[int, str]) -> None:
        for outcome, numbers in (("announced", announced.done), ("refused", announced.refused)):
            for source, rows in Counter(sources[number] for number in numbers).items():
                self._metrics.rows[source][outcome].inc(rows)
        if announced.refused:
            # The reasons are in the rows and not in the log, because an invalid order ID may be any text.
            _log.error("outbox_rows_refused", rows=len(announced.refused), first=min(announced.refused))

    async def _count(self, outbox: Outbox) -> None:
        now = self._clock()
        if now - self._counted_at >= _COUNT_EVERY:
            try:
                backlog = await outbox.backlog(self._queues.names)
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
            self._note_held(backlog)

    def _note_held(self, backlog: OutboxBacklog) -> None:
        """Log rows of unknown sources, which stay until the sources file of a relay contains their sources."""
        unknown = backlog.held_source if backlog.held else None
        if unknown is not None and unknown != self._unknown:
            _log.error("outbox_rows_held", rows=backlog.held, unknown_source=unknown)
        self._unknown = unknown

    async def _wait_for(self, error: Unavailable, stop: asyncio.Event) -> None:
        """Pause. Each problem is logged once."""
        if (problem := f"{type(error).__name__} {error.server}") != self._problem:
            self._problem = problem
            log = _log.error if isinstance(error, UserError) else _log.warning
            log("relay_waits", server=error.server, error=str(error))
        self._failures += 1
        longest = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, self._failures)
        retry_after = error.retry_after if isinstance(error, BacklogFull | QueueUnavailable) else 0.0
        pause = min(retry_after, _LONGEST_PAUSE) + random.uniform(0, longest)  # noqa: S311  spreads the retries of relays
        await _first_of(stop, None, pause)

    def _available(self) -> None:
        if self._problem:
            _log.info("relay_resumed")
        self._problem, self._failures = "", 0


async def _first_of(stop: asyncio.Event, changed: asyncio.Event | None, seconds: float) -> None:
    """Return when one of the events is set, or the time has passed."""
    waiting = [asyncio.create_task(event.wait()) for event in (stop, changed) if event is not None]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
