"""Orders of three sources at a steady rate, processed by real worker commands, while a test disturbs Redis.

Each source gets orders that Redis confirms immediately, orders that it confirms when a replica has them, and new versions of a few
orders. Their IDs are the same in all sources. The database shows which orders are missing, which are wrong, and how long no order
of a queue was stored after a disturbance.
"""

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from acceptance.commands import WorkerCommand, Workers
from acceptance.steady_orders import DURABILITIES, Announced, Announcer
from redis.exceptions import RedisError
from support import Cli, connected, eventually

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.partitions import partition_of
from ingest.domain.source_name import queue_of
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

CURRENCIES = {"shop-de": "EUR", "shop-uk": "GBP", "shop-no": "NOK"}
# An order that only Redis has confirmed may be lost if it was confirmed this shortly before a failure.
_UNREPLICATED = 1.0


@dataclass(frozen=True)
class Disturbance:
    """One of them, from its beginning to the end of the recovery.

    Attributes:
        loses: whether orders that no replica had confirmed may be lost until its end.
    """

    name: str
    began: float
    ended: float
    loses: bool


class DisturbedQueue:
    """The running load and its workers.

    Attributes:
        sources: the announced orders by source.
        disturbances: those that are over.
    """

    def __init__(
        self,
        redis_url: str,
        dsn: str,
        queues: Sequence[str],
        announced: Mapping[str, Announced],
        workers: WorkerCommand,
    ) -> None:
        self.sources = announced
        self.disturbances: list[Disturbance] = []
        self._redis_url = redis_url
        self._dsn = dsn
        self._workers = workers
        self._queues = queues
        self._partitions = len(queues) // len(announced)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, cli: Cli, folder: Path, redis_url: str, *, partitions: int, rate: float, processes: int
    ) -> AsyncIterator["DisturbedQueue"]:
        """Start the workers and the load. At the end of the block, the load stops, and everything that Redis has is processed.

        Args:
            cli: the commands, with the settings of the database and the queue.
            folder: for the sources file.
            redis_url: of the Redis that is disturbed.
            partitions: of each source.
            rate: orders per second of all sources together.
            processes: worker processes.
        """
        stream, file = cli.env["INGEST_STREAM"], folder / "sources.toml"
        async with AsyncExitStack() as stack:
            apis = {
                name: await stack.enter_async_context(SimulatedApi(_behaviour(currency), seed=1))
                for name, currency in CURRENCIES.items()
            }
            file.write_text("".join(f'[sources.{name}]\nupstream.url = "{apis[name].url_template}"\n' for name in apis))
            async with control_client(redis_url) as client:
                layouts = [await LayoutRecord(client, queue_of(stream, name), partitions).read() for name in apis]
            queues = [queue for layout in layouts for queue in layout.current]
            announcers = {}
            for name, api in apis.items():
                opened = (Producer.connect(redis_url, stream, source=name, durability=each) for each in DURABILITIES)
                fast, safe = [await stack.enter_async_context(producer) for producer in opened]
                announcers[name] = Announcer(api, fast, safe, rate / len(apis))
            workers = Workers(
                cli,
                {
                    "INGEST_REDIS_URL": redis_url,
                    "INGEST_SOURCES": str(file),
                    "INGEST_PARTITIONS": str(partitions),
                },
            )
            command = workers.start(processes=processes)
            stack.callback(command.close)
            await command.says("process_started")
            announced = {name: announcer.announced for name, announcer in announcers.items()}
            disturbed = cls(redis_url, cli.env["INGEST_POSTGRES_DSN"], queues, announced, command)
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as announcing:
                for announcer in announcers.values():
                    announcing.create_task(announcer.run(stop))
                await disturbed._all_queues_store()
                yield disturbed
                stop.set()
            await eventually(disturbed._is_finished, every=0.2)
            assert await command.stop() == 0

    @asynccontextmanager
    async def disturbance(self, name: str, *, loses: bool = False) -> AsyncIterator[None]:
        """Record the block as a disturbance, which lasts until each queue stores orders again."""
        began = time.time()
        yield
        await self._all_queues_store()
        self.disturbances.append(Disturbance(name, began, time.time(), loses))

    @asynccontextmanager
    async def backlog(self) -> AsyncIterator[None]:
        """Freeze the workers during the block, which begins when each queue contains orders that only Redis has."""
        self._workers.ask_group(signal.SIGSTOP)
        try:
            await eventually(self._all_queues_wait)
            yield
        finally:
            self._workers.ask_group(signal.SIGCONT)

    async def findings(self) -> "Findings":
        """Compare the database with the announced orders."""
        query = "SELECT source, order_id, currency, status, extract(epoch FROM ingested_at)::float8 AS at FROM orders"
        async with connected(self._dsn) as connection:
            rows = {(row["source"], row["order_id"]): row for row in await connection.fetch(query)}
        stored = defaultdict(list)
        for (source, order_id), row in rows.items():
            if order_id.startswith("order-"):
                stored[source, partition_of(order_id, self._partitions)].append(row["at"])
        lost: list[str] = []
        tail: list[str] = []
        wrong: list[str] = []
        for source, announced in self.sources.items():
            for order_id, call in announced.calls[Durability.MEMORY].items():
                if (source, order_id) not in rows:
                    (tail if self._may_be_lost(*call) else lost).append(f"{source} {order_id}")
            safe = {*announced.calls[Durability.REPLICATED], *announced.versions}
            lost += [f"{source} {order_id}" for order_id in safe if (source, order_id) not in rows]
        for (source, order_id), row in rows.items():
            version = self.sources[source].versions.get(order_id)
            found = row["status"] if version else row["currency"]
            if found != (f"version {version}" if version else CURRENCIES[source]):
                wrong.append(f"{source} {order_id}: {found}")
        pauses = {
            each.name: sorted(max(_pauses(sorted(times), each)) for times in stored.values())
            for each in self.disturbances
        }
        return Findings(len(rows), lost, tail, wrong, pauses)

    def _may_be_lost(self, began: float, confirmed: float) -> bool:
        """Whether a partition may have confirmed its part of a call shortly before or during a failover."""
        return any(
            each.loses and each.began - _UNREPLICATED <= confirmed and began <= each.ended for each in self.disturbances
        )

    async def _all_queues_store(self) -> None:
        """Wait until each queue has stored orders from now on."""
        now = datetime.now(UTC)
        query = "SELECT source, order_id FROM orders WHERE ingested_at > $1 AND order_id LIKE 'order-%'"
        async with connected(self._dsn) as connection:

            async def is_so() -> bool:
                rows = await connection.fetch(query, now)
                found = {(row["source"], partition_of(row["order_id"], self._partitions)) for row in rows}
                return len(found) == len(self._queues)

            await eventually(is_so, every=0.1)

    async def _is_finished(self) -> bool:
        return not any(await self._counts() or [1])

    async def _all_queues_wait(self) -> bool:
        return all(await self._counts() or [0])

    async def _counts(self) -> list[int]:
        """How many orders Redis has in each queue, or nothing while it does not respond."""
        counts = []
        with suppress(RedisError, OSError):
            async with control_client(self._redis_url) as client:
                for queue in self._queues:
                    keys = Keys.of(queue)
                    # Together, because an order may move between them.
                    async with client.pipeline() as pipe:
                        for lane in keys.lanes:
                            pipe.xlen(lane.stream)
                        pipe.zcard(keys.retry)
                        counts.append(sum(await pipe.execute()))
                return counts
        return []


@dataclass(frozen=True)
class Findings:
    """What became of the orders.

    Attributes:
        stored: how many are stored.
        lost: orders that were confirmed and are not stored, except `tail`.
        tail: orders that only the failed server had confirmed, shortly before or during its failure.
        wrong: orders with the content of another source, or with an older version than the last.
        pauses: for each disturbance, the longest time without a stored order of each queue, ascending.
    """

    stored: int
    lost: list[str]
    tail: list[str]
    wrong: list[str]
    pauses: dict[str, list[float]]

    @property
    def longest_pause(self) -> float:
        """Of all queues and disturbances."""
        return max(pause for pauses in self.pauses.values() for pause in pauses)

    def __str__(self) -> str:
        lines = [
            f"{self.stored} stored, {len(self.lost)} lost, {len(self.tail)} lost before they were replicated, {len(self.wrong)} wrong"
        ]
        for name, found in self.pauses.items():
            lines.append(f"{name}: median pause {found[len(found) // 2]:.2f} s, longest {found[-1]:.2f} s")
        return "\n".join(lines)


def _pauses(times: Sequence[float], during: Disturbance) -> Iterator[float]:
    for before, after in pairwise([0.0, *times]):
        if after > during.began and before < during.ended:
            yield after - max(before, during.began)


def _behaviour(currency: str) -> Behaviour:
    return Behaviour(any_id=True, currency=currency, latency="0.01-0.05")
