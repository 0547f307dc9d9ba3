"""A move that fails half-way leaves the order in two places rather than in none, because the new place is written first.

Each command that a move is made of is forbidden in turn, so that the script ends there.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from consumers import Consumer
from contract.heartbeating import GROUP, NOW, connect
from redelivery import sweep
from redis.asyncio import Redis
from servers.kinds import Kind

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.jobs import JobKind
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.scanner import PartitionScanner
from ingest.queue.redis.connection import QueueRefused

pytestmark = pytest.mark.each_server

QUEUE = "orders"
KEYS = Keys.of(QUEUE)
LEASE = 3600.0


async def replay(consumer: Consumer, delivery: Delivery) -> object:
    del delivery
    return await PartitionDeadLetters(consumer.access.control, QUEUE).change(JobKind.REPLAY, Selection(everything=True))


async def retry_later(consumer: Consumer, delivery: Delivery) -> object:
    return await consumer.reschedule(delivery, 0.0, 2)


async def dead_letter(consumer: Consumer, delivery: Delivery) -> object:
    return await consumer.dead_letter(delivery, DeadReason.REJECTED, "no")


async def nothing(consumer: Consumer, delivery: Delivery) -> None:
    del consumer, delivery


async def lose(consumer: Consumer, delivery: Delivery) -> None:
    await consumer.access.control.xgroup_delconsumer(KEYS.stream, GROUP, "one")
    del delivery


Step = Callable[[Consumer, Delivery], Awaitable[object]]
# The steps before, the move, and its write commands.
MOVES: dict[str, tuple[Step, Step, list[str]]] = {
    "to the retry set": (nothing, retry_later, ["hset", "zadd", "xack", "xdel", "set"]),
    "to the dead letters": (nothing, dead_letter, ["xadd", "xack", "xdel", "set"]),
    "back from the retry set": (
        retry_later,
        lambda consumer, _: consumer.move_due(10),
        ["xadd", "hdel", "zrem"],
    ),
    "back from the dead letters": (dead_letter, replay, ["xadd", "xdel", "set"]),
    "by release": (nothing, lambda consumer, delivery: consumer.release([delivery]), ["xclaim", "zadd"]),
    "by the sweep": (lose, lambda consumer, _: sweep(consumer, LEASE), ["xclaim", "zadd", "hset"]),
}
CASES = [(name, command) for name, (_, _, commands) in MOVES.items() for command in commands]


@pytest.fixture
async def one(own_valkey: ValkeyServer, own_redis: Redis) -> AsyncIterator[Consumer]:
    await allow_all_but(own_redis)
    url = own_valkey.url.replace(f":{own_valkey.password}@", "clerk:secret@")
    async with connect(url, QUEUE, "one") as consumer:
        await consumer.ensure_group()
        yield consumer


async def allow_all_but(redis: Redis, *forbidden: str) -> None:
    refused = [f"-{command}" for command in forbidden]
    await redis.execute_command("ACL", "SETUSER", "clerk", "on", ">secret", "~*", "&*", "+@all", *refused)


@pytest.mark.parametrize(("move", "command"), CASES, ids=[f"{name}, without {command}" for name, command in CASES])
async def test_a_move_that_is_refused_half_way_loses_nothing_and_can_be_made_again(
    one: Consumer, own_redis: Redis, kind: Kind, move: str, command: str
) -> None:
    prepare, make, _ = MOVES[move]
    await own_redis.xadd(KEYS.stream, {"order_id": "a"})
    [delivery] = await one.read(1, NOW)
    await prepare(one, delivery)
    substituted = ["xnack"] if command == "xclaim" and kind.is_redis_since(8, 8) else []

    await allow_all_but(own_redis, command, *substituted)
    with suppress(QueueRefused, QueueUnavailable):
        await make(one, delivery)
    refused_at = await scanner(own_redis)
    await allow_all_but(own_redis)

    assert refused_at, "in two places rather than in none"
    await make(one, delivery)
    assert await scanner(own_redis)


async def scanner(redis: Redis) -> list[str]:
    """The place from which the order will still be stored or reported."""
    look = PartitionScanner(redis, QUEUE, GROUP)
    queued = [sighting.place async for page in look.queued() for sighting in page]
    return [*queued, *[sighting.place async for page in look.dead() for sighting in page]]
