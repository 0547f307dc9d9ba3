"""A backfill that kills its own process at a named moment on its third page: `python backfill_victim.py MOMENT`, settings by
environment.

It is assembled from the real parts except for one, which dies. The product contains no code for this.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.operating.backfill import Backfill, BackfillProgress, BackfillRequest, JobState
from ingest.operations.backends import Backends
from ingest.operations.backfill.lane import MainLane
from ingest.operations.backfill.run import BackfillParts, BackfillRun
from ingest.queue.operate.partition_monitor import PartitionMonitor
from ingest.queue.redis.connection import control_client
from ingest.services.producers import open_producer
from ingest.settings import load_settings
from ingest.settings.source_file import source_settings
from ingest.sources.list_opening import open_order_list
from ingest.store.backfills import Backfills
from ingest.store.connections.pool import Pool

MOMENT = sys.argv[1]
_PAGE = 3


def die() -> NoReturn:
    """End by SIGKILL, without handlers, flushed buffers or messages to servers."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class Fate:
    """Counts the pages, and strikes at the moment of the third one."""

    page = 1

    def meets(self, moment: str) -> None:
        if moment == MOMENT and self.page >= _PAGE:
            die()


fate = Fate()


class Lane(MainLane):
    """Dies around the enqueueing of a portion."""

    async def enqueue(self, orders: Sequence[ListedOrder]) -> None:
        fate.meets("before_enqueue")
        await super().enqueue(orders)
        fate.meets("after_enqueue")


class Jobs(Backfills):
    """Dies around the record of a page, and before the end of the job."""

    async def record(self, held: Backfill, progress: BackfillProgress) -> None:
        fate.meets("before_record")
        await super().record(held, progress)
        fate.meets("after_record")
        fate.page += 1

    async def end(self, held: Backfill, state: JobState, progress: BackfillProgress, error: str | None = None) -> None:
        fate.meets("before_end")
        await super().end(held, state, progress, error)
        fate.meets("after_end")


async def main() -> None:
    [settings] = source_settings(load_settings()).values()
    servers = Backends.of(settings)
    async with (
        Pool.open(servers.postgres_dsn, size=2) as pool,
        open_order_list(settings, os.environ) as listed,
        control_client(servers.redis_url) as client,
        open_producer(settings) as producer,
    ):
        jobs = Jobs(pool, servers.source)
        now = datetime.now(UTC)
        await jobs.add(BackfillRequest(now - timedelta(days=60), now), "cli:victim")
        held = await jobs.take_waiting("victim")
        assert held is not None
        lane = Lane(PartitionMonitor(client, servers.stream, servers.group), producer, "backfill")
        await BackfillRun(held, BackfillParts(listed, pool, lane, jobs)).run()


asyncio.run(main())
