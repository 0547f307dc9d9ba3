"""Where orders are in the queue, on real servers: each entry is seen where it is, as long as it is not finished."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis
from support import eventually

from ingest.domain.delivery import DeadReason, Delivery
from ingest.queue.consumer import Consumer
from ingest.queue.keys import Keys
from ingest.queue.producer import Producer
from ingest.queue.scanner import Location, OrderLocation, Page, QueueScanner

GROUP = "ingest"


@pytest.fixture
async def consumer(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with Consumer.open(redis_url, queue_name, GROUP, "c", 1.0) as consumer:
        await consumer.ensure_group()
        yield consumer


@pytest.fixture
def scanner(redis: Redis, queue_name: str) -> QueueScanner:
    return QueueScanner(redis, queue_name, GROUP)


async def enqueue(redis: Redis, queue: str, *order_ids: str) -> None:
    await Producer(redis, queue).enqueue(order_ids)


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    taken: list[Delivery] = []

    async def all_taken() -> bool:
        taken.extend(await consumer.read(count - len(taken), 0.5))
        return len(taken) == count

    await eventually(all_taken)
    return taken


async def queued(scanner: QueueScanner) -> dict[str | None, Location]:
    return {sighting.order_id: sighting.place async for page in scanner.queued() for sighting in page}


async def dead(scanner: QueueScanner) -> list[OrderLocation]:
    return [sighting async for page in scanner.dead() for sighting in page]


async def test_a_queue_that_does_not_exist_is_empty(scanner: QueueScanner) -> None:
    assert await queued(scanner) == {}
    assert await dead(scanner) == []


async def test_an_entry_is_seen_wherever_it_is(
    scanner: QueueScanner, consumer: Consumer, redis: Redis, queue_name: str
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


async def test_what_came_back_from_the_retry_set_is_seen_in_the_stream(
    scanner: QueueScanner, consumer: Consumer, redis: Redis, queue_name: str
) -> None:
    await enqueue(redis, queue_name, "a")
    (delivery,) = await take(consumer, 1)
    await consumer.reschedule(delivery, 0.0, 2)
    await eventually(lambda: consumer.move_due(10))

    assert await queued(scanner) == {"a": Location.WAITING}


class Overtaken(QueueScanner):
    """A look during which a retry becomes due: after the stream was read to its end, before the retry set."""

    overtake: Callable[[], Awaitable[int]]

    async def _retries(self) -> AsyncIterator[Page]:
        await self.overtake()
        async for page in super()._retries():
            yield page


async def test_what_comes_into_the_stream_after_it_was_read_is_seen(
    consumer: Consumer, redis: Redis, keys: Keys, queue_name: str
) -> None:
    await enqueue(redis, queue_name, "a", "b")
    first, _ = await take(consumer, 2)
    await consumer.reschedule(first, 3600.0, 2)

    async def overtake() -> int:
        await redis.zadd(keys.retry, {first.entry.id: 0})
        return await consumer.move_due(10)

    scanner = Overtaken(redis, queue_name, GROUP)
    scanner.overtake = overtake

    assert await queued(scanner) == {"b": Location.PENDING, "a": Location.WAITING}


async def test_entries_of_several_pages_are_each_seen_once(
    scanner: QueueScanner, consumer: Consumer, redis: Redis, queue_name: str
) -> None:
    names = [f"order-{number}" for number in range(2500)]
    await enqueue(redis, queue_name, *names)
    for delivery in await take(consumer, 1200):
        await consumer.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")
    for delivery in await take(consumer, 1100):
        await consumer.reschedule(delivery, 3600.0, 2)

    in_queue = [sighting.order_id async for page in scanner.queued() for sighting in page]

    assert [sighting.order_id for sighting in await dead(scanner)] == names[:1200]
    assert in_queue[:200] == names[2300:]
    # A hash is read in no order, and what it holds may be told twice.
    assert set(in_queue[200:]) == set(names[1200:2300])


async def test_pending_entries_are_seen_behind_many_that_were_deleted_while_pending(
    scanner: QueueScanner, consumer: Consumer, redis: Redis, keys: Keys, queue_name: str
) -> None:
    names = [f"order-{number}" for number in range(1500)]
    await enqueue(redis, queue_name, *names)
    taken = await take(consumer, 1500)
    await redis.xdel(keys.stream, *[delivery.entry.id for delivery in taken[1:1400]])

    assert await queued(scanner) == dict.fromkeys([names[0], *names[1400:]], Location.PENDING)


async def test_entries_without_a_valid_order_have_no_name(scanner: QueueScanner, redis: Redis, keys: Keys) -> None:
    for fields in ({"order": "1"}, {"order_id": "not valid"}, {"order_id": b"\xff"}):
        await redis.xadd(keys.stream, fields)  # type: ignore[arg-type]

    assert await queued(scanner) == {None: Location.WAITING}
