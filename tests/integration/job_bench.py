"""One queue with its jobs, for tests."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec
from dead_letter_entries import chunks, dead_fields
from shipped import as_admin, as_api

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest
from ingest.operations import jobs as operations
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.entries import DeadLetterEntries, RetryEntries
from ingest.operations.jobs.requests import entry_request
from ingest.operations.jobs.run import JobParts, JobRun
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.retries import Retries
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.redis.connection import control_client
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

EVERYTHING = Selection(everything=True)


class Bench:
    """One queue with its jobs.

    Args:
        client: of the administrator, to plant and inspect.
        own: of the HTTP API, which runs jobs.
        pool: of the HTTP API.
        servers: with its accounts.
    """

    def __init__(self, client: Any, own: Any, pool: Pool, servers: Backends) -> None:
        self.client = client
        self.keys = Keys.of(servers.stream)
        layout = layout_reader(own, servers.stream)
        self.dead_letters = DeadLetters(own, layout)
        self.entries = {
            EntryKind.DEAD_LETTERS: DeadLetterEntries(self.dead_letters),
            EntryKind.RETRIES: RetryEntries(Retries(own, layout)),
        }
        self.parts = JobParts(own, servers, Jobs(pool), JobOutput(pool))
        self.pool = pool

    @classmethod
    @asynccontextmanager
    async def open(cls, redis_url: str, dsn: str, queue: str) -> AsyncIterator[Self]:
        url, dsn = as_api(redis_url), as_api(dsn)
        async with (
            Pool.open(dsn, size=2) as pool,
            control_client(url) as own,
            control_client(as_admin(redis_url)) as client,
        ):
            yield cls(client, own, pool, Backends(url, dsn, queue))

    async def add(self, count: int, keys: Keys | None = None, first: int = 0, **fields: object) -> None:
        some = (dead_fields(f"o{number}", **fields) for number in range(first, first + count))
        for chunk in chunks(some):
            async with self.client.pipeline(transaction=False) as pipe:
                for each in chunk:
                    pipe.xadd((keys or self.keys).dead, each)
                await pipe.execute()

    async def add_retries(self, count: int, error: str = "HTTP 503", due: int = 4_000_000_000_000) -> None:
        for number in range(count):
            about = ["order_id", f"o{number}", "retry_reason", "http_status", "retry_error", error, "attempt", "2"]
            name = f"{1_000 + number}-0"
            await self.client.hset(self.keys.retry_entries, name, msgspec.msgpack.encode(about))
            await self.client.zadd(self.keys.retry, {name: due + number})

    async def start(
        self, kind: JobKind, selection: Selection = EVERYTHING, rate: float | None = None, file_format: str = "jsonl"
    ) -> Job:
        return await operations.start(
            self.parts.jobs, await self.request(kind, selection, rate, file_format), "me", "one"
        )

    async def request(
        self, kind: JobKind, selection: Selection = EVERYTHING, rate: float | None = None, file_format: str = "jsonl"
    ) -> JobRequest:
        entries = self.entries[kind.entries or EntryKind.DEAD_LETTERS]
        return await entry_request(entries, kind, selection, rate=rate, file_format=file_format)

    async def replayed(self, *keys: Keys) -> Counter[str]:
        found = [fields for each in keys or [self.keys] for _, fields in await self.client.xrange(each.express)]
        return Counter(fields[b"order_id"].decode() for fields in found)

    async def ended(self, job: Job) -> Job:
        found = await self.parts.jobs.get(job.id)
        assert found is not None
        return found

    async def audited(self) -> list[tuple[Any, ...]]:
        rows = await self.pool.fetch("SELECT phase, actor, action, count FROM audit_log ORDER BY id")
        return [tuple(row) for row in rows]


async def interrupted_run(job: Job, bench: Bench, *, steps: int) -> None:
    """Run a job, and cancel the run after some steps."""
    reached = asyncio.Event()
    seen = 0

    def note(progress: JobProgress) -> None:
        nonlocal seen
        seen += progress.done > job.progress.done
        if seen >= steps:
            reached.set()

    running = asyncio.create_task(JobRun(job, bench.parts, on_progress=note).run())
    await asyncio.wait_for(reached.wait(), 30)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
