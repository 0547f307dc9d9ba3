"""Unknown fields of an entry, from a newer release or a user's producer, are carried through every move."""

from collections.abc import Awaitable, Callable

import pytest
from consumers import Consumer
from contract.heartbeating import GROUP, LIFETIME, NOW, heartbeats_end, keep_alive
from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.failed.partition_retries import PartitionRetries

# The names are of no release: a version of the format, a field of a later one, one that is not text, one without a value.
UNKNOWN = {b"version": b"7", b"ingest_later": "größe".encode(), b"\xff\x00": bytes(range(256)), b"empty": b""}
EVERYTHING = Selection(everything=True)

Move = Callable[[Consumer, Delivery, Redis, str], Awaitable[object]]


async def retry(one: Consumer, held: Delivery, redis: Redis, queue: str) -> None:
    del redis, queue
    assert await one.reschedule(held, 0.0, 2)
    assert await one.move_due(1) == 1


async def dead_letter(one: Consumer, held: Delivery, redis: Redis, queue: str) -> None:
    assert await one.dead_letter(held, DeadReason.INVALID_MESSAGE, "no")
    [(_, dead)] = await redis.xrange(Keys.of(queue).dead)
    assert UNKNOWN.items() <= dead.items()
    assert (await PartitionDeadLetters(redis, queue).change(JobKind.REPLAY, EVERYTHING)).done == 1


async def dead_letter_by_hand(one: Consumer, held: Delivery, redis: Redis, queue: str) -> None:
    assert await one.reschedule(held, 3_600.0, 2)
    assert (
        await PartitionRetries(redis, queue, GROUP).change(JobKind.DEAD_LETTER, Selection(everything=True), "cli:me")
        == 1
    )
    assert (await PartitionDeadLetters(redis, queue).change(JobKind.REPLAY, EVERYTHING)).done == 1


async def release(one: Consumer, held: Delivery, redis: Redis, queue: str) -> None:
    await keep_alive(redis, Keys.of(queue), one)
    assert await one.release([held]) == 1


async def crash(one: Consumer, held: Delivery, redis: Redis, queue: str) -> None:
    """Claimed from a dead consumer, like a suspect."""
    del held
    await one.heartbeat(LIFETIME)
    await heartbeats_end(redis, Keys.of(queue), "one")


@pytest.mark.each_server
@pytest.mark.parametrize(
    "move", [retry, dead_letter, dead_letter_by_hand, release, crash], ids=lambda move: move.__name__
)
@pytest.mark.parametrize("groups", ["one group", "two groups"])
async def test_unknown_fields_and_newer_versions_are_carried(
    one: Consumer, two: Consumer, redis: Redis, queue_name: str, keys: Keys, move: Move, groups: str
) -> None:
    if groups == "two groups":
        await redis.xgroup_create(keys.stream, "theirs", "0", mkstream=True)
    await redis.xadd(keys.stream, {b"order_id": b"a", **UNKNOWN})
    [held] = await one.read(1, NOW)

    await move(one, held, redis, queue_name)

    await keep_alive(redis, keys, two)
    found = await two.claim_abandoned(10)
    again = [*found.released, *found.dead, *await two.read(1, NOW)]
    assert [delivery.order_id for delivery in again] == ["a"]
    assert UNKNOWN.items() <= again[0].fields.items()
