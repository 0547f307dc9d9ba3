"""Entries that a foreign producer has made hard to move. They are moved or end by themselves, and block no other entry."""

import msgspec
import pytest
from consumers import Consumer
from contract.heartbeating import NOW
from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.queue.layout.entries import flat, to_delivery
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.scanner import Location, PartitionScanner

pytestmark = pytest.mark.topologies


def wide(fields: int, order_id: str = "a") -> dict[bytes, bytes]:
    """The fields of an entry with as many of them. Some have long names, some are not UTF-8, some are empty."""
    extra = {b"field-%d" % number: bytes([number % 256]) * (number % 300) for number in range(fields - 2)}
    return {b"order_id": order_id.encode(), **extra, b"x" * 70_000: b"y" * 70_000}


async def read_one(consumer: Consumer, redis: Redis, keys: Keys, fields: dict[bytes, bytes]) -> Delivery:
    command = [part for pair in fields.items() for part in pair]
    await redis.execute_command("XADD", keys.stream, "*", *command)
    [delivery] = await consumer.read(1, NOW)
    return delivery


@pytest.mark.parametrize("fields", [499, 501, 4_100, 20_000])
async def test_an_entry_of_any_width_is_retried_dead_lettered_and_replayed_with_all_its_fields(
    one: Consumer, redis: Redis, queue_name: str, keys: Keys, fields: int
) -> None:
    given = wide(fields)
    first = await read_one(one, redis, keys, given)

    assert await one.reschedule(first, 0.0, 2)
    assert await one.move_due(10) == 1
    [second] = await one.read(1, NOW)
    assert (second.order_id, second.attempt) == ("a", 2)
    assert given.items() <= second.fields.items()
    assert await one.dead_letter(second, DeadReason.REJECTED, "no")
    dead_letters = PartitionDeadLetters(redis, queue_name)
    [entry] = [entry async for page in dead_letters.newest_first(Selection(everything=True)) for entry in page.entries]
    assert given.items() - {(b"order_id", b"a")} <= entry.fields.items()
    assert (await dead_letters.change(JobKind.REPLAY, Selection(everything=True))).done == 1
    [third] = await one.read(1, NOW)

    assert given.items() <= third.fields.items()
    assert (third.order_id, third.attempt) == ("a", 1)
    assert await one.ack([third.entry]) == 1


async def test_a_wide_dead_letter_that_another_program_wrote_is_replayed(
    one: Consumer, redis: Redis, queue_name: str, keys: Keys
) -> None:
    given = wide(9_000)
    command = [part for pair in {**given, b"reason": b"theirs"}.items() for part in pair]
    await redis.execute_command("XADD", keys.dead, "*", *command)

    assert (await PartitionDeadLetters(redis, queue_name).change(JobKind.REPLAY, Selection(everything=True))).done == 1

    [delivery] = await one.read(1, NOW)
    assert given.items() <= delivery.fields.items()


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"junk",
        b"\xc1",
        msgspec.msgpack.encode({"order_id": "a"}),
        msgspec.msgpack.encode(["order_id"]),
        msgspec.msgpack.encode(["order_id", ["a"]]),
        msgspec.msgpack.encode(["order_id", 1, "x", None]),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode(["order_id", "a"])[:-1],
        msgspec.msgpack.encode([str(number) for number in range(20_000)]),
    ],
    ids=["empty", "text", "no type", "a map", "one part", "nested", "numbers", "no parts", "cut short", "wide"],
)
async def test_a_junk_value_in_the_retry_set_becomes_a_dead_letter_and_stops_no_other(
    one: Consumer, redis: Redis, queue_name: str, keys: Keys, packed: bytes
) -> None:
    sound = await read_one(one, redis, keys, {b"order_id": b"sound"})
    await one.reschedule(sound, 0.0, 2)
    await redis.hset(keys.retry_entries, "0-1", packed)
    await redis.zadd(keys.retry, {"0-1": 0, "no fields": 0})

    seen = [sighting async for page in PartitionScanner(redis, queue_name, "ingest").queued() for sighting in page]
    assert await one.move_due(10) == 3

    assert (await redis.zcard(keys.retry), await redis.hlen(keys.retry_entries)) == (0, 0)
    assert "sound" in [sighting.order_id for sighting in seen if sighting.place is Location.RETRYING]
    delivered = await one.read(10, NOW)
    assert "sound" in [delivery.order_id for delivery in delivered]
    dead_letters = await redis.xrange(keys.dead)
    # A wide entry comes back as an entry.
    assert len(dead_letters) + len(delivered) == 2
    for _, letter in dead_letters:
        assert (letter[b"reason"], letter[b"content"]) == (b"invalid_message", packed)


@pytest.mark.parametrize("junk", [b"junk", b"", msgspec.msgpack.encode([1]), msgspec.msgpack.encode("text")])
def test_a_field_that_only_looks_packed_stays_as_it_is(junk: bytes) -> None:
    delivery = to_delivery("orders", b"1-1", {b"order_id": b"a", b"ingest_packed": junk}, 1)

    assert delivery.fields == {b"order_id": b"a", b"ingest_packed": junk}


def test_what_is_packed_does_not_hide_what_stands_outside() -> None:
    packed = msgspec.msgpack.encode(["order_id", "inside", "tenant", "x"])

    delivery = to_delivery("orders", b"1-1", {b"order_id": b"outside", b"ingest_packed": packed}, 1)

    assert (delivery.order_id, delivery.fields) == ("outside", {b"order_id": b"outside", b"tenant": b"x"})


def test_an_entry_of_usual_width_is_not_packed() -> None:
    fields = {b"order_id": b"a", b"tenant": b"x"}

    assert flat(fields) == [b"order_id", b"a", b"tenant", b"x"]
