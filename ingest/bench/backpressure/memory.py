"""What stands at the flow's ports in this bench: a queue and a table in memory, and an external API that sleeps.

It is the worker's admission that is measured here. What Redis, HTTP and PostgreSQL add is not in it, while all that the flow
does for each delivery is: its lease, the checks of its document, its batch, its ack, its metrics.
"""

import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import islice

from ingest.bench.backpressure.calls import Calls
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
from ingest.domain.fetch.outage import Outage
from ingest.domain.fetch.result import Fetched
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.shutdown import Shutdown

_DOCUMENT = (
    '{"id":"%s","status":"placed","currency":"GBP","placed_at":"2010-12-01T08:26:00Z","customer_id":"17850",'
    '"lines":[{"sku":"85123A","description":"WHITE HANGING HEART T-LIGHT HOLDER","quantity":6,"unit_price":"2.55"}]}'
)


class MemoryQueue:
    """Keeps the queue's ports of `ingest.flow.ports` for deliveries that are made as they are read.

    Args:
        count: deliveries; their order IDs are numbers from 0.
        shutdown: asked for a stop when all of them are acked.
    """

    keeps_results = False

    def __init__(self, count: int, shutdown: Shutdown) -> None:
        self._numbers = iter(range(count))
        self._unfinished = count
        self._shutdown = shutdown

    async def read(self, count: int, block: float) -> list[Delivery]:
        """Up to `count` deliveries; at the end none, after waiting."""
        now = time.time()
        taken = [_delivery(str(number), now) for number in islice(self._numbers, count)]
        if not taken:
            await self._shutdown.pause(block)
        return taken

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """Count what is finished."""
        self._unfinished -= len(entries)
        if self._unfinished == 0:
            self._shutdown.request("all calls are made")
        return len(entries)

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        """Results are not kept."""
        raise NotImplementedError(f"{len(finished)} results were to be kept")

    async def heartbeat(self, lifetime: float) -> Heartbeat:
        """Our own clock will do."""
        del lifetime
        return Heartbeat(time.time(), is_first=False, leads=False, consumers=1)

    async def report_outage(self, outage: Outage | None, lifetime: float) -> None:
        """Not read in this bench."""

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Nothing is left behind."""
        del count, known, counted
        return []

    async def claim_abandoned(self, count: int) -> Abandoned:
        """There is no other consumer."""
        del count
        return Abandoned([], [])

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        """No call fails."""
        del reason, error
        raise NotImplementedError(f"order {delivery.order_id} was to be retried: {after=} {attempt=}")

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """No order is faulty."""
        raise NotImplementedError(f"order {delivery.order_id} was to be dead-lettered: {reason}, {error}")

    async def move_due(self, most: int) -> int:
        """No call is made again."""
        del most
        return 0

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """No lease is lost."""
        del entries
        return set()

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """Nothing is released before the end."""
        return len(deliveries)

    async def sweep(self, idle: float) -> Sweep:
        """Nothing is forgotten."""
        del idle
        return Sweep(is_complete=True, released=0, restored=0)

    async def trim(self, most: int) -> int:
        """Nothing is kept."""
        del most
        return 0

    async def remove_stale(self, idle: float) -> int:
        """There is no other consumer."""
        del idle
        return 0

    async def leave(self) -> int:
        """No consumer remains."""
        return 0


class SleepingApi:
    """Keeps the contract of `ingest.flow.ports.Upstream`: a call, then a document of one line."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Make the call of that number."""
        asked_at, exchange = datetime.now(UTC), Exchange((request,), time.monotonic())
        await self._calls.make(int(request.order_id))
        return Fetched((_DOCUMENT % request.order_id).encode(), asked_at, exchange)

    fetch_once = fetch


class MemoryStore:
    """Keeps the contract of `ingest.flow.ports.Store`, and forgets the rows."""

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """All are new."""
        return [Effect.INSERTED] * len(rows)

    upsert_unlocked = upsert

    async def locked(self, order_ids: Collection[str]) -> set[str]:
        """Return none: nobody locks any."""
        del order_ids
        return set()

    async def some_stored(self, count: int) -> list[str]:
        """Nothing is looked up."""
        raise NotImplementedError(f"{count} stored orders were asked for")

    async def would_update(self, rows: Sequence[OrderRow]) -> bool:
        """Return true: any row is taken."""
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
