"""Implements the flow's ports in memory: a queue, a table, and an external API that sleeps.

The bench measures the worker's admission. The measurement excludes Redis, HTTP and PostgreSQL, and includes the whole
flow of a delivery: its lease, the checks of its document, its batch, its ack and its metrics.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice

from ingest.bench.backpressure.calls import Calls
from ingest.domain.deliveries.clock_bounds import ClockBounds, unknown_time
from ingest.domain.deliveries.dead_letter import StoredSince
from ingest.domain.deliveries.delivery import (
    Abandoned,
    DeadReason,
    Delivery,
    Effect,
    EntryRef,
    Heartbeat,
    RetryReason,
    Sweep,
)
from ingest.domain.deliveries.result import Finished
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Fetched
from ingest.domain.operating.source_state import NO_REPORT, ProcessReport
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.shutdown import Shutdown

_DOCUMENT = (
    '{"id":"%s","status":"placed","currency":"GBP","placed_at":"2010-12-01T08:26:00Z","customer_id":"17850",'
    '"lines":[{"sku":"85123A","description":"WHITE HANGING HEART T-LIGHT HOLDER","quantity":6,"unit_price":"2.55"}]}'
)


class MemoryQueue:
    """Implements the queue's ports of `ingest.flow.ports`, and creates deliveries when they are read.

    Args:
        count: number of deliveries. Their order IDs are numbers from 0.
        shutdown: requested when all deliveries are acked.
    """

    keeps_results = False
    may_own_more = False

    def __init__(self, count: int, shutdown: Shutdown) -> None:
        self._numbers = iter(range(count))
        self._unfinished = count
        self._shutdown = shutdown

    async def read(self, count: int, block: float) -> list[Delivery]:
        """Return up to `count` deliveries, or an empty list after waiting at the end."""
        now = time.time()
        taken = [_delivery(str(number), now) for number in islice(self._numbers, count)]
        if not taken:
            await self._shutdown.pause(block)
        return taken

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """Count finished deliveries."""
        self._unfinished -= len(entries)
        if self._unfinished == 0:
            self._shutdown.request("all calls are made")
        return len(entries)

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        """Fail, because results are never kept."""
        raise NotImplementedError(f"cannot keep {len(finished)} results")

    async def heartbeat(
        self, lifetime: float, clock: ClockBounds = unknown_time, report: ProcessReport = NO_REPORT
    ) -> Heartbeat:
        """Return the local time."""
        del lifetime, clock, report
        return Heartbeat(time.time(), is_first=False, leads=False, consumers=1)

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Return no entries, because consumers never leave any."""
        del count, known, counted
        return []

    async def claim_abandoned(self, count: int) -> Abandoned:
        """Return no entries, because there is no other consumer."""
        del count
        return Abandoned([], [])

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        """Fail, because calls never fail."""
        del reason, error
        raise NotImplementedError(f"cannot retry order {delivery.order_id}: {after=} {attempt=}")

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """Fail, because orders are never faulty."""
        raise NotImplementedError(f"cannot dead-letter order {delivery.order_id}: {reason}, {error}")

    async def move_due(self, most: int) -> int:
        """Return zero, because calls are never repeated."""
        del most
        return 0

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """Return no lost leases."""
        del entries
        return set()

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """Do nothing, because deliveries are not released before the end."""
        return len(deliveries)

    async def sweep(self, idle: float) -> Sweep:
        """Do nothing."""
        del idle
        return Sweep(is_complete=True, released=0, restored=0)

    async def trim(self, most: int) -> int:
        """Do nothing."""
        del most
        return 0

    async def remove_stale(self, idle: float) -> int:
        """Do nothing, because there is no other consumer."""
        del idle
        return 0

    async def settle_not_found(self, stored: StoredSince) -> int:
        """Do nothing, because every order is found."""
        del stored
        return 0

    async def leave(self) -> int:
        """Do nothing, because there are no other consumers."""
        return 0


class SleepingApi:
    """Implements `ingest.flow.ports.Upstream` with a call and a document of one line."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Make the call with the order's number."""
        asked_at, exchange = datetime.now(UTC), Exchange((request,), time.monotonic())
        await self._calls.make(int(request.order_id))
        return Fetched((_DOCUMENT % request.order_id).encode(), asked_at, exchange)

    fetch_once = fetch


class MemoryStore:
    """Implements `ingest.flow.ports.Store` without keeping rows."""

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Report all rows as new."""
        return [Effect.INSERTED] * len(rows)

    upsert_unlocked = upsert

    async def locked(self, order_ids: Collection[str]) -> set[str]:
        """Return none, because orders are never locked."""
        del order_ids
        return set()

    async def stored_since(self, times: Mapping[str, datetime]) -> set[str]:
        """Fail, because stored orders are never read."""
        raise NotImplementedError(f"cannot return {len(times)} stored orders")

    async def some_stored(self, count: int) -> list[str]:
        """Fail, because stored orders are never read."""
        raise NotImplementedError(f"cannot return {count} stored orders")

    async def would_update(self, rows: Sequence[OrderRow]) -> bool:
        """Return true, because every row is accepted."""
        del rows
        return True


def _delivery(number: str, now: float) -> Delivery:
    return Delivery(
        entry=EntryRef("memory", f"{number}-0"),
        order_id=number,
        enqueued_at=now,
        attempt=1,
        count=1,
        document=None,
        fields={b"order_id": number.encode()},
    )
