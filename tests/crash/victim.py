"""A worker that kills its own process at a named moment: `python victim.py MOMENT NAME`, settings by environment.

It is assembled from the real parts except for one, which dies. The product contains no code for this.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn

from ingest.domain.deliveries.delivery import Abandoned, DeadReason, Delivery, Effect, EntryRef, RetryReason, Sweep
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.shutdown import Shutdown
from ingest.services.worker_parts import Classes
from ingest.settings import load_settings
from ingest.store.orders.order_store import OrderStore
from ingest.telemetry.logs import setup_logs
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.client import UpstreamClient

# A program's path begins with its own folder, and the tests' helpers are in the one above.
sys.path.append(str(Path(__file__).parents[1]))

from consumers import Consumer
from opened_worker import opened_worker


class Fate:
    """Knows the moment, and strikes when it has come."""

    def __init__(self, moment: str) -> None:
        self._moment = moment

    def meets(self, moment: str) -> None:
        """Die, if this is the moment."""
        if moment == self._moment:
            die()


def die() -> NoReturn:
    """End by SIGKILL, without handlers, flushed buffers or messages to servers."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


fate = Fate(sys.argv[1])
shutdown = Shutdown(0.1)


class Upstream(UpstreamClient):
    """Dies around a fetch."""

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        fate.meets("before_fetch")
        fetched = await super().fetch(request)
        fate.meets("after_fetch")
        return fetched


class Store(OrderStore):
    """Dies around a commit, or while PostgreSQL is busy with it."""

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        fate.meets("before_commit")
        if sys.argv[1] == "during_commit":
            await self._connection.fetch("SELECT 1")  # connecting takes longer than all the rest
            storing = asyncio.create_task(super().upsert(rows))
            # At any moment of the statement: being prepared, sent, executed or committed.
            await asyncio.wait([storing], timeout=random.uniform(0, 0.01))
            die()
        effects = await super().upsert(rows)
        fate.meets("after_commit")
        return effects


class Queue(Consumer):
    """Dies around a move in Redis."""

    async def read(self, count: int, block: float) -> list[Delivery]:
        taken = await super().read(count, block)
        if taken:
            fate.meets("after_read")
        elif sys.argv[1].endswith("release"):
            # All entries have been read, so that it can stop.
            shutdown.request("test")
        return taken

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        acked = await super().ack(entries)
        fate.meets("after_ack")
        return acked

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        fate.meets("before_reschedule")
        moved = await super().reschedule(delivery, after, attempt, reason, error)
        fate.meets("after_reschedule")
        return moved

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        fate.meets("before_dead_letter")
        moved = await super().dead_letter(delivery, reason, error)
        fate.meets("after_dead_letter")
        return moved

    async def move_due(self, most: int) -> int:
        moved = await super().move_due(most)
        if moved:
            fate.meets("after_move_due")
        return moved

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        taken = await super().claim_own(count, known, counted=counted)
        if taken:
            fate.meets("after_claim_own")
        return taken

    async def sweep(self, idle: float) -> Sweep:
        found = await super().sweep(idle)
        if found.released:
            fate.meets("after_sweep")
        if found.restored:
            fate.meets("after_restore")
        return found

    async def claim_abandoned(self, count: int) -> Abandoned:
        taken = await super().claim_abandoned(count)
        if taken.released:
            fate.meets("after_claim_idle")
        if taken.dead:
            fate.meets("after_claim_dead")
        return taken

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        fate.meets("before_release")
        released = await super().release(deliveries)
        fate.meets("after_release")
        return released


async def main() -> None:
    """Work until the moment comes."""
    settings = load_settings()
    setup_logs("json", "info")
    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    async with opened_worker(settings, metrics, sys.argv[2], Classes(Queue, Store, Upstream)) as worker:
        await worker.run(shutdown)


if __name__ == "__main__":
    asyncio.run(main())
