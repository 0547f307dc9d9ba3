"""The queue scanner on real servers. An unfinished entry is found in its place, even while entries move."""

from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from consumers import Consumer, server_stats
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.scanner import Location, OrderLocation, Page, PartitionScanner, _Position
from ingest.queue.produce.producer import Producer

pytestmark = pytest.mark.topologies

GROUP = "ingest"


@pytest.fixture
async def consumer(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with Consumer.open(redis_url, queue_name, GROUP, "c", 1.0) as consumer:
        await consumer.ensure_group()
        yield consumer


@pytest.fixture
def scanner(redis: Redis, queue_name: str) -> PartitionScanner:
    return PartitionScanner(redis, queue_name, GROUP)


async def enqueue(redis: Redis, queue: str, *order_ids: str) -> None:
    await Producer(redis, queue).enqueue(order_ids)


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    taken: list[Delivery] = []

    async def all_taken() -> bool:
        taken.extend(await consumer.read(count - len(taken), 0.5))
        return len(taken) == count

    await eventually(all_taken)
    return taken


async def queued(scanner: PartitionScanner) -> dict[str | None, Location]:
    return {entry.order_id: entry.place async for page in scanner.queued() for entry in page}


async def dead(scanner: PartitionScanner) -> list[OrderLocation]:
    return [entry async for page in scanner.dead() for entry in page]


async def test_a_queue_that_does_not_exist_is_empty(scanner: PartitionScanner) -> None:
    assert await queued(scanner) == {}
    assert await dead(scanner) == []


@pytest.mark.each_server
async def test_an_entry_is_found_wherever_it_is(
    scanner: PartitionScanner, consumer: Consumer, redis: Redis, queue_name: str
) -> None:
    await enqueue(redis, queue_name, "done", "dead", "retried", "released", "held", "waiting")
    done, dead_lettered, retried, released, _ = await take(consumer, 5)
    await consumer.ack([done.entry])
    await consumer.dead_letter(dead_lettered, DeadReason.NOT_FOUND, "HTTP 404")
    await consumer.reschedule(retried, 3600.0, 2)
    await consumer.release([released])

    assert await queued(scanner) == {
        "retried": Location.RETRYING,
        "released": Location.PENDING,
        "held": Location.PENDING,
        "waiting": Location.WAITING,
    }
    assert await dead(scanner) == [OrderLocation("dead", Location.DEAD, "not_found")]


async def test_a_retry_that_is_due_again_is_found_waiting(
    scanner: PartitionScanner, consumer: Consumer, redis: Redis, queue_name: str
) -> None:
    await enqueue(redis, queue_name, "a")
    (delivery,) = await take(consumer, 1)
    await consumer.reschedule(delivery, 0.0, 2)
    await eventually(lambda: consumer.move_due(10))

    assert await queued(scanner) == {"a": Location.WAITING}


async def test_an_entry_of_the_express_lane_is_found_with_or_without_a_group(
    scanner: PartitionScanner, redis: Redis, keys: Keys
) -> None:
    await redis.delete(keys.express)
    for order_id in ("finished", "held", "released", "waiting"):
        await redis.xadd(keys.express, {"order_id": order_id})
    without_a_group = await queued(scanner)

    await redis.xgroup_create(keys.express, GROUP, id="0")
    await redis.xgroup_create(keys.express, "audit", id="0")
    reply: Any = await redis.xreadgroup(GROUP, "c", {keys.express: ">"}, count=3)
    finished = reply[0][1][0][0]
    await redis.xack(keys.express, GROUP, finished)
    milliseconds, sequence = map(int, finished.decode().split("-"))
    await redis.zadd(keys.express_settled, {f"{milliseconds:020}-{sequence:020}": 0})

    assert without_a_group == dict.fromkeys(("finished", "held", "released", "waiting"), Location.WAITING)
    assert await queued(scanner) == {
        "held": Location.PENDING,
        "released": Location.PENDING,
        "waiting": Location.WAITING,
    }


class Interrupted(PartitionScanner):
    """A scan during which something happens before it reads one of its parts, the first of them being 0."""

    before_part = 0
    happens: Callable[[], Awaitable[object]]
    _begun = 0

    async def _lane(self, lane: _Position) -> AsyncIterator[Page]:
        await self._begin()
        async for page in super()._lane(lane):
            yield page

    async def _retries(self) -> AsyncIterator[Page]:
        await self._begin()
        async for page in super()._retries():
            yield page

    async def _begin(self) -> None:
        if self._begun == self.before_part:
            await self.happens()
        self._begun += 1


class Place(StrEnum):
    MAIN = "main lane"
    EXPRESS = "express lane"
    RETRY = "retry set"
    DEAD = "dead letters"


ENTRY = {b"order_id": b"a"}
PARTS = 5
MOVES = [
    (Place.MAIN, Place.RETRY),
    (Place.MAIN, Place.DEAD),
    (Place.EXPRESS, Place.RETRY),
    (Place.EXPRESS, Place.DEAD),
    (Place.RETRY, Place.EXPRESS),
    (Place.RETRY, Place.MAIN),  # by a worker of an older release
]


async def put(redis: Redis, keys: Keys, place: Place) -> None:
    """Put the entry into one place, among others that do not move."""
    match place:
        case Place.RETRY:
            packed = msgspec.msgpack.encode([part.decode() for pair in ENTRY.items() for part in pair])
            await redis.hset(keys.retry_entries, "1-0", packed)  # type: ignore[arg-type]  # bytes are what Redis keeps
            await redis.zadd(keys.retry, {"1-0": 1})
        case _:
            streams = {Place.MAIN: keys.stream, Place.EXPRESS: keys.express, Place.DEAD: keys.dead}
            await redis.xadd(streams[place], ENTRY)  # type: ignore[arg-type]  # redis-py's types are invariant


async def clear(redis: Redis, keys: Keys, place: Place) -> None:
    """Remove the entry from one place. Its group stays."""
    match place:
        case Place.RETRY:
            await redis.zrem(keys.retry, "1-0")
            await redis.hdel(keys.retry_entries, "1-0")
        case _:
            await redis.xtrim(
                {Place.MAIN: keys.stream, Place.EXPRESS: keys.express}[place], maxlen=0, approximate=False
            )


@pytest.mark.parametrize(("start", "end"), MOVES, ids=[f"from the {start} to the {end}" for start, end in MOVES])
async def test_an_entry_that_moves_once_during_the_scan_is_found(
    redis: Redis, keys: Keys, queue_name: str, start: Place, end: Place
) -> None:
    found: dict[int, set[str | None]] = {}
    for before_part in range(PARTS + 1):
        await redis.delete(keys.stream, keys.express, keys.retry, keys.retry_entries, keys.dead)
        await put(redis, keys, start)

        async def move() -> None:
            await put(redis, keys, end)
            await clear(redis, keys, start)

        scanner = Interrupted(redis, queue_name, GROUP)
        scanner.before_part, scanner.happens = before_part, move
        found[before_part] = {entry.order_id async for page in scanner.queued() for entry in page}
        if before_part == PARTS:
            await move()
        found[before_part] |= {entry.order_id for entry in await dead(scanner)}

    assert all("a" in seen for seen in found.values()), found


async def test_a_retry_that_falls_due_during_the_scan_is_found(
    consumer: Consumer, redis: Redis, keys: Keys, queue_name: str
) -> None:
    await enqueue(redis, queue_name, "a", "b")
    first, _ = await take(consumer, 2)
    await consumer.reschedule(first, 3600.0, 2)

    async def fall_due() -> None:
        await redis.zadd(keys.retry, {first.entry.id: 0})
        await consumer.move_due(10)

    scanner = Interrupted(redis, queue_name, GROUP)
    scanner.before_part, scanner.happens = 2, fall_due

    assert await queued(scanner) == {"b": Location.PENDING, "a": Location.WAITING}


async def test_entries_of_several_pages_are_each_found_once(
    scanner: PartitionScanner, consumer: Consumer, redis: Redis, queue_name: str
) -> None:
    names = [f"order-{number}" for number in range(2500)]
    await enqueue(redis, queue_name, *names)
    for delivery in await take(consumer, 1200):
        await consumer.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")
    for delivery in await take(consumer, 1100):
        await consumer.reschedule(delivery, 3600.0, 2)

    in_queue = [entry.order_id async for page in scanner.queued() for entry in page]

    assert [entry.order_id for entry in await dead(scanner)] == names[:1200]
    assert in_queue[:200] == names[2300:]
    # A hash is read in no order, and may give a field twice.
    assert set(in_queue[200:]) == set(names[1200:2300])


async def test_pending_entries_are_found_behind_many_that_were_deleted_while_pending(
    scanner: PartitionScanner, consumer: Consumer, redis: Redis, keys: Keys, queue_name: str
) -> None:
    names = [f"order-{number}" for number in range(1500)]
    await enqueue(redis, queue_name, *names)
    taken = await take(consumer, 1500)
    await redis.xdel(keys.stream, *[delivery.entry.id for delivery in taken[1:1400]])

    assert await queued(scanner) == dict.fromkeys([names[0], *names[1400:]], Location.PENDING)


async def test_entries_without_a_valid_order_have_no_name(scanner: PartitionScanner, redis: Redis, keys: Keys) -> None:
    for fields in ({"order": "1"}, {"order_id": "not\nvalid"}, {"order_id": b"\xff"}):
        await redis.xadd(keys.stream, fields)  # type: ignore[arg-type]

    assert await queued(scanner) == {None: Location.WAITING}


async def test_large_documents_are_not_handed_over(scanner: PartitionScanner, redis: Redis, keys: Keys) -> None:
    document = b"1" * 100_000
    names = [f"order-{number}" for number in range(30)]
    for name in names:
        await redis.xadd(keys.stream, {"order_id": name, "document": document})
        await redis.xadd(keys.dead, {"order_id": name, "document": document, "reason": "rejected"})
        packed = msgspec.msgpack.encode(["order_id", name, "document", document.decode()])
        await redis.hset(keys.retry_entries, name, packed)  # type: ignore[arg-type]  # bytes are what Redis keeps
        await redis.zadd(keys.retry, {name: 1})
    before = (await server_stats(redis, keys, "stats"))["total_net_output_bytes"]

    in_queue = [entry.order_id async for page in scanner.queued() for entry in page]

    assert sorted(in_queue) == sorted(2 * names)
    assert await dead(scanner) == [OrderLocation(name, Location.DEAD, "rejected") for name in names]
    assert (await server_stats(redis, keys, "stats"))["total_net_output_bytes"] - before < 100_000
