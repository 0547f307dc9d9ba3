"""The requirements of the suites on an implementation besides its consumers, which are to inspect the group and to let time pass."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from consumers import Consumer
from fakes.group import MemoryGroup
from fakes.queue import MemoryQueue
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.domain.deliveries.delivery import EntryRef
from ingest.domain.operating.source_state import Reason
from ingest.queue.consume.liveness import read_report
from ingest.queue.layout.keys import Keys
from ingest.services.worker_parts import Queue

GROUP = "ingest"
LIFETIME = 60.0  # of a heartbeat: longer than any test
LEASE = 60.0
NOW = 0.001  # the shortest wait for new entries
# Owner (None: released) and deliveries of each pending entry.
Held = dict[EntryRef, tuple[str | None, int]]


class GroupUnderTest(Protocol):
    """A consumer group, as tests see it."""

    async def consumer(self, name: str, *, results_age: float = 0.0) -> Queue: ...
    async def add(self, *order_ids: str, entry_id: str | None = None, **fields: str) -> list[EntryRef]: ...
    async def pending(self) -> Held: ...
    async def waiting(self) -> int:
        """How many entries are in the retry set."""

    async def dead(self) -> list[tuple[str, str]]:
        """Order and reason of each dead letter."""

    async def results(self) -> list[tuple[str, str]]:
        """Order and outcome of each result."""

    async def exists(self, entry: EntryRef) -> bool: ...
    async def members(self) -> set[str]: ...
    async def reasons(self) -> dict[str, list[Reason]]:
        """The reasons that each consumer reports."""

    async def lose(self, entry: EntryRef) -> None:
        """Lose an entry with its pending record."""

    async def forget_stream(self) -> None:
        """Lose all entries, and that IDs were given to them."""

    async def delete(self, entry: EntryRef) -> None:
        """Delete an entry, like a producer that limits a stream's length."""

    async def drop_consumer(self, name: str) -> None:
        """Remove a consumer by hand, with the pending records of its entries."""

    async def age(self, entries: Sequence[EntryRef], seconds: float) -> None:
        """Let the leases of entries not have been renewed for so long."""

    async def end_heartbeat(self, name: str) -> None: ...
    async def entitle(self, *consumers: Queue) -> None:
        """Let consumers have been heard for a heartbeat's lifetime: they may reclaim from others."""

    async def end_leadership(self) -> None: ...
    async def erase(self, order_id: str) -> None:
        """Mark an order as erased."""

    async def add_group(self) -> None:
        """Another group, which has read nothing yet."""

    async def finish_other_group(self) -> None:
        """The other group finishes everything."""


class MemoryGroupUnderTest:
    """The fake."""

    def __init__(self) -> None:
        self._now = 1_700_000_000.0
        self.group = MemoryGroup(lambda: self._now)

    async def consumer(self, name: str, *, results_age: float = 0.0) -> Queue:
        return MemoryQueue(self.group, name, keeps_results=results_age > 0)

    async def add(self, *order_ids: str, entry_id: str | None = None, **fields: str) -> list[EntryRef]:
        named = {name.encode(): value.encode() for name, value in fields.items()}
        return [self.group.add_entry({b"order_id": each.encode(), **named}, entry_id) for each in order_ids]

    async def pending(self) -> Held:
        return {entry: (pending.owner, pending.count) for entry, pending in self.group.pending.items()}

    async def waiting(self) -> int:
        return len(self.group.waiting)

    async def dead(self) -> list[tuple[str, str]]:
        return [(str(dead.order_id), dead.reason.value) for dead in self.group.dead]

    async def results(self) -> list[tuple[str, str]]:
        return self.group.results

    async def exists(self, entry: EntryRef) -> bool:
        return entry in self.group.stream

    async def members(self) -> set[str]:
        return set(self.group.seen)

    async def reasons(self) -> dict[str, list[Reason]]:
        return {**self.group.reasons}

    async def lose(self, entry: EntryRef) -> None:
        self.group.lose(entry)

    async def forget_stream(self) -> None:
        for entry in list(self.group.stream):
            self.group.lose(entry)

    async def delete(self, entry: EntryRef) -> None:
        del self.group.stream[entry]

    async def drop_consumer(self, name: str) -> None:
        for entry in self.group.holds(name):
            del self.group.pending[entry]

    async def age(self, entries: Sequence[EntryRef], seconds: float) -> None:
        for entry in entries:
            self.group.pending[entry].renewed_at = self._now - seconds

    async def end_heartbeat(self, name: str) -> None:
        self.group.heard_until[name] = self._now

    async def entitle(self, *consumers: Queue) -> None:
        for consumer in consumers:
            await consumer.heartbeat(LIFETIME)
            self.group.heard_since[_name(consumer)] = self._now

    async def end_leadership(self) -> None:
        self.group.leader = self.group.leader[0], self._now

    async def erase(self, order_id: str) -> None:
        self.group.erased.add(order_id)

    async def add_group(self) -> None:
        self.group.has_others = True
        self.group.kept_for_others = set(self.group.stream)

    async def finish_other_group(self) -> None:
        self.group.kept_for_others.clear()


class RedisGroupUnderTest:
    """The real implementation, whose time passes by moving the records of the server."""

    def __init__(self, redis: Redis, url: str, queue: str, stack: AsyncExitStack) -> None:
        self._redis = redis
        self._url = url
        self._queue = queue
        self._stack = stack
        self._keys = Keys.of(queue)

    async def consumer(self, name: str, *, results_age: float = 0.0) -> Queue:
        opened = Consumer.open(self._url, self._queue, GROUP, name, 1.0, results_age)
        consumer = await self._stack.enter_async_context(opened)
        await consumer.ensure_group()
        return consumer

    async def add(self, *order_ids: str, entry_id: str | None = None, **fields: str) -> list[EntryRef]:
        stream = self._keys.stream
        return [
            EntryRef(
                stream, (await self._redis.xadd(stream, {"order_id": each, **fields}, id=entry_id or "*")).decode()
            )
            for each in order_ids
        ]

    async def pending(self) -> Held:
        held: Held = {}
        for stream in await self._streams():
            for row in await self._redis.xpending_range(stream, GROUP, "-", "+", 1_000):
                is_released = not row["consumer"] or row["time_since_delivered"] > 1e12
                owner = None if is_released else row["consumer"].decode()
                held[EntryRef(stream, row["message_id"].decode())] = owner, row["times_delivered"]
        return held

    async def waiting(self) -> int:
        return int(await self._redis.zcard(self._keys.retry))

    async def dead(self) -> list[tuple[str, str]]:
        return [
            (fields[b"order_id"].decode(), fields[b"reason"].decode())
            for _, fields in await self._redis.xrange(self._keys.dead)
        ]

    async def results(self) -> list[tuple[str, str]]:
        return [
            (fields[b"order_id"].decode(), fields[b"outcome"].decode())
            for _, fields in await self._redis.xrange(self._keys.results)
        ]

    async def exists(self, entry: EntryRef) -> bool:
        return bool(await self._redis.xrange(entry.stream, entry.id, entry.id))

    async def members(self) -> set[str]:
        return {row["name"].decode() for row in await self._redis.xinfo_consumers(self._keys.stream, GROUP)}

    async def reasons(self) -> dict[str, list[Reason]]:
        found = {}
        async for key in self._redis.scan_iter(match=f"{self._keys.circuit.replace('{', '?').replace('}', '?')}*"):
            if reasons := read_report(await self._redis.get(key), Reason):
                found[key.decode().removeprefix(self._keys.circuit)] = reasons
        return found

    async def lose(self, entry: EntryRef) -> None:
        await self._redis.xack(entry.stream, GROUP, entry.id)
        await self.delete(entry)

    async def forget_stream(self) -> None:
        await self._redis.delete(self._keys.stream, self._keys.express)
        await self.consumer("first")  # it makes the group

    async def delete(self, entry: EntryRef) -> None:
        await self._redis.xdel(entry.stream, entry.id)

    async def drop_consumer(self, name: str) -> None:
        await self._redis.xgroup_delconsumer(self._keys.stream, GROUP, name)

    async def age(self, entries: Sequence[EntryRef], seconds: float) -> None:
        held = await self.pending()
        for entry in entries:
            name = str(held[entry][0])
            await self._redis.xclaim(entry.stream, GROUP, name, 0, [entry.id], idle=int(seconds * 1000), justid=True)

    async def end_heartbeat(self, name: str) -> None:
        await self._redis.zadd(self._keys.alive, {name: await self._just_now()})

    async def entitle(self, *consumers: Queue) -> None:
        for consumer in consumers:
            await consumer.heartbeat(LIFETIME)
            await self._redis.zadd(self._keys.standing, {_name(consumer): await self._just_now()})

    async def end_leadership(self) -> None:
        await self._redis.hset(self._keys.maintenance, "until", "1")

    async def erase(self, order_id: str) -> None:
        await self._redis.zadd(self._keys.erased, {order_id: await self._just_now()})

    async def add_group(self) -> None:
        for stream in (self._keys.stream, self._keys.express):
            await self._redis.xgroup_create(stream, "audit", id="0", mkstream=True)

    async def finish_other_group(self) -> None:
        for stream in (self._keys.stream, self._keys.express):
            await self._redis.xreadgroup("audit", "auditor", {stream: ">"}, noack=True)

    async def _streams(self) -> list[str]:
        """The lanes that our group is in."""
        lanes = []
        for stream in (self._keys.stream, self._keys.express):
            try:
                groups = await self._redis.xinfo_groups(stream)
            except ResponseError:
                continue  # nothing was ever added to it
            lanes += [stream] * any(group["name"] == GROUP.encode() for group in groups)
        return lanes

    async def _just_now(self) -> float:
        seconds, micros = await self._redis.time()
        return float(seconds * 1000 + micros / 1000 - 10)


def _name(consumer: Queue) -> str:
    assert isinstance(consumer, MemoryQueue | Consumer)
    return consumer.name


@asynccontextmanager
async def redis_group(redis: Redis, url: str, queue: str) -> AsyncIterator[GroupUnderTest]:
    """A group of a new queue at that URL. The client is one of the server that has it."""
    async with AsyncExitStack() as stack:
        group = RedisGroupUnderTest(redis, url, queue, stack)
        await group.consumer("first")  # it makes the group
        await redis.xgroup_delconsumer(Keys.of(queue).stream, GROUP, "first")
        yield group
