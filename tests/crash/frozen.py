"""A worker that freezes its own process at a named moment, once: `python frozen.py MOMENT NAME`, settings by environment.

SIGSTOP stands for a suspended laptop, a paused virtual machine or a stalled disk, which a process cannot notice. It
continues at SIGCONT and ends at SIGTERM.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ingest.domain.deliveries.delivery import Delivery, Effect, EntryRef
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

moments = {sys.argv[1]}


def freeze(moment: str) -> None:
    """Stop until SIGCONT, if this is the moment."""
    if moment in moments:
        moments.clear()
        os.kill(os.getpid(), signal.SIGSTOP)


class Upstream(UpstreamClient):
    """Freezes with a document that is not stored yet."""

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        fetched = await super().fetch(request)
        freeze("after_fetch")
        return fetched


class Store(OrderStore):
    """Freezes when it is already decided that the batch is still ours, or has just committed it."""

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        freeze("before_commit")
        effects = await super().upsert(rows)
        freeze("after_commit")
        return effects


class Queue(Consumer):
    """Freezes with entries that are read and not begun, or after the check that the entries are still its own."""

    async def read(self, count: int, block: float) -> list[Delivery]:
        taken = await super().read(count, block)
        if taken:
            freeze("after_read")
        return taken

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        freeze("before_ack")
        return await super().ack(entries)


async def main() -> None:
    """Work until SIGTERM, but for the time of being frozen."""
    settings = load_settings()
    setup_logs("json", "info")
    shutdown = Shutdown(settings.shutdown_grace)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shutdown.request, "SIGTERM")
    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    async with opened_worker(settings, metrics, sys.argv[2], Classes(Queue, Store, Upstream)) as worker:
        await worker.run(shutdown)


if __name__ == "__main__":
    asyncio.run(main())
