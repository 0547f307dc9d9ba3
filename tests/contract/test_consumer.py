"""The consumer on a real server. Every move is atomic, happens once, and may be sent again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from consumers import Consumer
from redelivery import claim_idle, refs
from redis.asyncio import Redis
from structlog.testing import capture_logs
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import QueueFull, QueueRefused, control_client, translated

GROUP = "ingest"
NOW = 0.001  # the shortest wait for new entries
LEASE = 60.0
WITH_DELIVERY: dict[str, Callable[[Consumer, Delivery], Awaitable[object]]] = {
    "reschedule": lambda consumer, delivery: consumer.reschedule(delivery, 0.0, 2),
    "dead_letter": lambda consumer, delivery: consumer.dead_letter(delivery, DeadReason.REJECTED, "no"),
    "release": lambda consumer, delivery: consumer.release([delivery]),
}
ODD = {b"tenant": "Zoë ☕".encode(), b"blob": bytes(range(256)), b"": b"", b"traceparent": b"00-abc-def-01"}


def connect(url: str, queue: str, name: str) -> AbstractAsyncContextManager[Consumer]:
    return Consumer.open(url, queue, GROUP, name, block=1.0)


@pytest.fixture
async def consumer(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with connect(redis_url, queue_name, "one") as consumer:
        await consumer.ensure_group()
        yield consumer


@pytest.fixture
async def other(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with connect(redis_url, queue_name, "two") as consumer:
        yield consumer


async def add(redis: Redis, keys: Keys, *order_ids: str, **fields: Any) -> list[str]:
    async with redis.pipeline(transaction=False) as pipe:
        for order_id in order_ids:
            pipe.xadd(keys.stream, {"order_id": order_id, **fields})
        return [entry_id.decode() for entry_id in await pipe.execute()]


async def pending(redis: Redis, keys: Keys) -> dict[str, tuple[str, int]]:
    """Owner and delivery count of each pending entry."""
    rows = await redis.xpending_range(keys.stream, GROUP, "-", "+", 10_000)
    return {row["message_id"].decode(): (row["consumer"].decode(), row["times_delivered"]) for row in rows}


async def idle_of(redis: Redis, keys: Keys, entry_id: str) -> int:
    rows = await redis.xpending_range(keys.stream, GROUP, entry_id, entry_id, 1)
    return int(rows[0]["time_since_delivered"])


async def age(redis: Redis, keys: Keys, name: str, entry_ids: list[str], seconds: float) -> None:
    """Let entries look idle for that long, their owner and count as they are."""
    await redis.xclaim(keys.stream, GROUP, name, 0, entry_ids, idle=int(seconds * 1000), justid=True)


def ids(deliveries: list[Delivery]) -> list[str]:
    return [delivery.entry.id for delivery in deliveries]


def orders(deliveries: list[Delivery]) -> list[str | None]:
    return [delivery.order_id for delivery in deliveries]


# -- the group and reading ----------------------------------------------------------------------------------------


async def test_the_group_is_made_once(redis_url: str, queue_name: str) -> None:
    async with connect(redis_url, queue_name, "one") as consumer:
        made = [await consumer.ensure_group() for _ in range(2)]

    assert made == [True, False]


async def test_a_new_group_sees_what_was_added_before_it(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    await add(redis, keys, "a", "b")

    async with connect(redis_url, queue_name, "one") as consumer:
        await consumer.ensure_group()
        deliveries = await consumer.read(10, NOW)

    assert orders(deliveries) == ["a", "b"]


async def test_a_waiting_read_returns_as_soon_as_there_is_an_entry(
    consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    async def is_blocked() -> bool:
        return any(client["cmd"] == "xreadgroup" and "b" in client["flags"] for client in await redis.client_list())

    reading = asyncio.create_task(consumer.read(10, block=30.0))
    await eventually(is_blocked)
    await add(redis, keys, "a")

    # Far less than the half minute that it may wait, because its connection allows a command at most six seconds.
    deliveries = await asyncio.wait_for(reading, 5)

    assert orders(deliveries) == ["a"]


# -- ack ----------------------------------------------------------------------------------------------------------


async def test_thousands_of_entries_are_acked_in_one_call(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    entry_ids = await add(redis, keys, *(f"order-{number}" for number in range(4_100)))
    await consumer.read(5_000, NOW)

    assert await consumer.renew(refs(keys, entry_ids)) == set()
    assert await consumer.ack(refs(keys, entry_ids)) == 4_100
    assert await redis.xlen(keys.stream) == 0


@pytest.mark.parametrize("count", [1, 2, 17, 28, 144, 199])
async def test_of_scattered_entries_just_those_that_are_held_are_acked(
    consumer: Consumer, redis: Redis, keys: Keys, count: int
) -> None:
    entry_ids = await add(redis, keys, *(f"order-{number}" for number in range(400)))
    await consumer.read(400, NOW)
    asked = [entry_ids[number * 7 % 400] for number in range(count)]
    reclaimed = asked[1::3]
    if reclaimed:
        await redis.xclaim(keys.stream, GROUP, "two", 0, reclaimed, justid=True)

    assert await consumer.ack(refs(keys, asked)) == count - len(reclaimed)

    owners = {entry_id: owner for entry_id, (owner, _) in (await pending(redis, keys)).items()}
    assert {entry_id for entry_id, owner in owners.items() if owner == "two"} == {*reclaimed}
    assert {entry_id for entry_id, owner in owners.items() if owner == "one"} == {*entry_ids} - {*asked}


# -- retries ------------------------------------------------------------------------------------------------------


async def test_a_short_delay_passes_by_itself(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    await add(redis, keys, "a")
    [delivery] = await consumer.read(1, NOW)
    await consumer.reschedule(delivery, after=0.2, attempt=2)

    moved = await eventually(lambda: consumer.move_due(100))

    assert moved == 1
    [again] = await consumer.read(1, NOW)
    # Only Redis' clock counts, and the new entry's ID shows it.
    assert int(again.entry.id.split("-")[0]) >= int(delivery.entry.id.split("-")[0]) + 200


async def test_retries_that_come_back_leave_nothing_behind(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    await add(redis, keys, *"abcdefghijkl")
    for delivery in await consumer.read(12, NOW):
        await consumer.reschedule(delivery, 0.0, 2)

    assert await consumer.move_due(100) == 12

    left = [
        await redis.zcard(keys.retry),
        await redis.hlen(keys.retry_entries),
        await redis.zcard(keys.retry_announced),
    ]
    assert left == [0, 0, 0]


async def test_large_documents_come_back_a_few_at_a_time(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    assert await consumer.move_due(4) == 0
    for order_id in "abcde":
        await redis.xadd(keys.stream, {"order_id": order_id, "document": b"1" * 400_000})
    for delivery in await consumer.read(5, NOW):
        await consumer.reschedule(delivery, 0.0, 2)

    async def calls() -> int:
        return int((await redis.info("commandstats"))["cmdstat_evalsha"]["calls"])

    before = await calls()

    assert await consumer.move_due(4) == 4
    assert await calls() - before == 2
    assert await consumer.move_due(4) == 1
    assert (await redis.xlen(keys.express), await redis.hlen(keys.retry_entries)) == (5, 0)


async def test_an_ack_finishes_no_other_entry_that_has_the_same_id(
    consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    # A failover to a server whose clock is behind can give out an ID again.
    await redis.xadd(keys.stream, {"order_id": "before"}, id="5-1")
    await consumer.read(1, NOW)
    await redis.delete(keys.stream)
    await consumer.ensure_group()
    await redis.xadd(keys.stream, {"order_id": "after"}, id="5-1")

    assert await consumer.ack(refs(keys, ["5-1"])) == 0

    assert orders(await consumer.read(1, NOW)) == ["after"]


@pytest.mark.each_server
@pytest.mark.parametrize("loss", ["the entry", "the stream", "everything"])
@pytest.mark.parametrize("move", ["reschedule", "dead_letter", "release"])
async def test_the_order_of_an_entry_that_redis_has_lost_waits_in_the_retry_set(
    consumer: Consumer, redis: Redis, keys: Keys, loss: str, move: str
) -> None:
    await redis.xadd(keys.stream, {"order_id": "a", "tenant": "x"})
    [delivery] = await consumer.read(1, NOW)
    if loss == "the entry":
        await redis.xack(keys.stream, GROUP, delivery.entry.id)
        await redis.xdel(keys.stream, delivery.entry.id)
    else:
        await (redis.delete(keys.stream) if loss == "the stream" else redis.flushdb())

    with capture_logs() as logs:
        await WITH_DELIVERY[move](consumer, delivery)

    assert await eventually(lambda: consumer.move_due(10)) == 1
    [again] = await consumer.read(1, NOW)
    assert (again.order_id, again.attempt, again.fields[b"tenant"]) == ("a", 2 if move == "reschedule" else 1, b"x")
    assert await redis.xlen(keys.dead) == 0
    [line] = [line for line in logs if line["event"] == "lost_entry_rescheduled"]
    assert (line["log_level"], line["order_id"]) == ("warning", "a")


async def held_under_an_id_given_again(consumer: Consumer, redis: Redis, keys: Keys) -> Delivery:
    """A delivery of the order `lost`, whose entry ID now belongs to the order `other`.

    As after a failover to a server that is behind: in its data, and in its clock.
    """
    await redis.xadd(keys.stream, {"order_id": "lost"}, id="5-1")
    [lost] = await consumer.read(1, NOW)
    await redis.delete(keys.stream)
    await consumer.ensure_group()
    await redis.xadd(keys.stream, {"order_id": "other"}, id="5-1")
    return lost


@pytest.mark.each_server
@pytest.mark.parametrize("move", ["reschedule", "dead_letter", "release"])
async def test_a_move_leaves_another_entry_that_has_the_same_id_and_is_held_here_as_it_is(
    consumer: Consumer, redis: Redis, keys: Keys, move: str
) -> None:
    # The move waited for Redis while this consumer read another entry with the same ID after a failover.
    lost = await held_under_an_id_given_again(consumer, redis, keys)
    [other] = await consumer.read(1, NOW)

    await WITH_DELIVERY[move](consumer, lost)

    assert await pending(redis, keys) == {"5-1": ("one", 1)}
    assert await redis.xlen(keys.dead) == 0
    assert await eventually(lambda: consumer.move_due(10)) == 1
    assert orders(await consumer.read(2, NOW)) == ["lost"]
    assert await consumer.ack([other.entry]) == 1


@pytest.mark.each_server
@pytest.mark.parametrize("is_lost_first", [False, True])
async def test_of_two_orders_whose_entries_had_the_same_id_one_is_released_and_the_other_waits_for_its_retry(
    consumer: Consumer, other: Consumer, redis: Redis, keys: Keys, *, is_lost_first: bool
) -> None:
    lost = await held_under_an_id_given_again(consumer, redis, keys)
    [held] = await consumer.read(1, NOW)

    released = await consumer.release([lost, held] if is_lost_first else [held, lost])

    assert released == 1
    assert orders((await other.claim_abandoned(10)).released) == ["other"]
    assert await eventually(lambda: consumer.move_due(10)) == 1
    assert orders(await consumer.read(2, NOW)) == ["lost"]


@pytest.mark.parametrize("is_lost_first", [False, True])
async def test_two_orders_whose_entries_had_the_same_id_both_wait_for_their_retries(
    consumer: Consumer, other: Consumer, redis: Redis, keys: Keys, *, is_lost_first: bool
) -> None:
    lost = await held_under_an_id_given_again(consumer, redis, keys)
    [second] = await other.read(1, NOW)

    moves = [(consumer, lost), (other, second)]
    for holder, delivery in moves if is_lost_first else reversed(moves):
        await holder.reschedule(delivery, 0.0, 2)

    assert await eventually(lambda: consumer.move_due(10)) == 2
    assert sorted(map(str, orders(await consumer.read(10, NOW)))) == ["lost", "other"]


@pytest.mark.each_server
@pytest.mark.parametrize("move", ["reschedule", "dead_letter"])
async def test_what_another_consumer_has_moved_is_not_moved_again_by_one_that_had_lost_it(
    consumer: Consumer, other: Consumer, redis: Redis, keys: Keys, move: str
) -> None:
    await add(redis, keys, "a")
    [lost] = await consumer.read(1, NOW)
    await redis.xgroup_delconsumer(keys.stream, GROUP, "one")
    [taken] = await claim_idle(other, 1, LEASE)
    await WITH_DELIVERY[move](other, taken)

    assert await WITH_DELIVERY[move](consumer, lost) is False

    assert await redis.xlen(keys.dead) + await redis.zcard(keys.retry) == 1


@pytest.mark.each_server
@pytest.mark.parametrize("move", ["reschedule", "dead_letter"])
async def test_a_move_that_is_sent_again_long_after_it_was_done_does_nothing(
    consumer: Consumer, redis: Redis, keys: Keys, move: str
) -> None:
    await add(redis, keys, "a")
    [delivery] = await consumer.read(1, NOW)
    await WITH_DELIVERY[move](consumer, delivery)
    await eventually(lambda: consumer.move_due(10)) if move == "reschedule" else None
    before = await redis.xlen(keys.express), await redis.zcard(keys.retry), await redis.xlen(keys.dead)

    assert await WITH_DELIVERY[move](consumer, delivery) is False

    assert (await redis.xlen(keys.express), await redis.zcard(keys.retry), await redis.xlen(keys.dead)) == before


async def test_a_retry_keeps_unknown_and_binary_fields_and_counts_the_attempt(
    consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.stream, {b"order_id": b"a", b"document": b'{"id":"a"}', **ODD})
    [first] = await consumer.read(1, NOW)

    await consumer.reschedule(first, 0.0, attempt=2)
    await consumer.move_due(1)

    [second] = await consumer.read(1, NOW)
    assert (second.order_id, second.attempt, second.count, second.document) == ("a", 2, 1, b'{"id":"a"}')
    assert {name: second.fields[name] for name in ODD} == ODD
    assert second.entry.id != first.entry.id


@pytest.mark.parametrize(
    "fields",
    [{}, {b"enqueued_at": b"1600000000123"}, {b"enqueued_at": b"soon"}, {b"enqueued_at": b"0"}],
    ids=["not given", "given", "given wrong", "given as zero"],
)
async def test_the_time_of_the_first_announcement_outlives_all_retries(
    consumer: Consumer, redis: Redis, keys: Keys, fields: dict[bytes, bytes]
) -> None:
    await redis.xadd(keys.stream, {b"order_id": b"a", **fields}, id="1500000000777-3")
    seen = []

    for attempt in (2, 3, 4):
        [delivery] = await consumer.read(1, NOW)
        seen.append(delivery.enqueued_at)
        await consumer.reschedule(delivery, 0.0, attempt)
        await consumer.move_due(1)

    [last] = await consumer.read(1, NOW)
    assert {*seen, last.enqueued_at} == {
        1_600_000_000.123 if fields.get(b"enqueued_at", b"")[:2] == b"16" else 1_500_000_000.777
    }
    assert last.attempt == 4


# -- dead letters -------------------------------------------------------------------------------------------------


async def test_a_dead_letter_says_all_there_is_to_say(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.xadd(keys.stream, {b"order_id": b"a", b"attempt": b"4", b"enqueued_at": b"1600000000123", **ODD})
    [delivery] = await consumer.read(1, NOW)
    seconds, micros = await redis.time()

    dead_lettered = await consumer.dead_letter(delivery, DeadReason.ATTEMPTS_EXHAUSTED, "HTTP 500: é")

    assert dead_lettered
    assert (await redis.xlen(keys.stream), await pending(redis, keys)) == (0, {})
    [(_, letter)] = await redis.xrange(keys.dead)
    dead_at = int(letter.pop(b"dead_at"))
    assert dead_at >= seconds * 1000 + micros // 1000
    assert letter.pop(b"ingest_seen_key")
    assert letter == {
        b"order_id": b"a",
        b"attempt": b"4",
        b"enqueued_at": b"1600000000123",
        **ODD,
        b"reason": b"attempts_exhausted",
        b"error": "HTTP 500: é".encode(),
        b"attempts": b"4",
        b"first_enqueued_at": b"1600000000123",
        b"worker": b"one",
    }


@pytest.mark.parametrize("milliseconds", [1_600_000_000_001, 1_700_000_000_123, 1_763_629_200_009, 1_763_629_200_999])
async def test_times_are_kept_to_the_millisecond(
    consumer: Consumer, redis: Redis, keys: Keys, milliseconds: int
) -> None:
    for order_id in ("a", "b"):
        await redis.xadd(keys.stream, {"order_id": order_id}, id=f"{milliseconds}-*")
    dead_lettered, retried = await consumer.read(2, NOW)

    await consumer.dead_letter(dead_lettered, DeadReason.REJECTED, "no")
    await consumer.reschedule(retried, 0.0, 2)
    await consumer.move_due(1)

    [(_, letter)] = await redis.xrange(keys.dead)
    [again] = await consumer.read(1, NOW)
    assert int(letter[b"first_enqueued_at"]) == milliseconds
    assert int(again.fields[b"enqueued_at"]) == milliseconds


@pytest.mark.parametrize("error", ["", "a\0b", "\ud800", "x" * 100_000])
async def test_any_error_text_can_be_dead_lettered(consumer: Consumer, redis: Redis, keys: Keys, error: str) -> None:
    await redis.xadd(keys.stream, {b"no": b"id"})
    [delivery] = await consumer.read(1, NOW)

    assert await consumer.dead_letter(delivery, DeadReason.INVALID_MESSAGE, error)

    [(_, letter)] = await redis.xrange(keys.dead)
    assert (letter[b"reason"], letter[b"no"]) == (b"invalid_message", b"id")


# -- abandoned entries ----------------------------------------------------------------------------------------


async def test_fresh_entries_in_front_do_not_hide_idle_ones(
    consumer: Consumer, other: Consumer, redis: Redis, keys: Keys
) -> None:
    entry_ids = await add(redis, keys, *(f"order-{number}" for number in range(300)))
    await other.read(300, NOW)
    await age(redis, keys, "two", entry_ids[200:], LEASE + 1)
    found: list[str] = []

    while claimed := await claim_idle(consumer, 10, LEASE):
        found += ids(claimed)

    assert sorted(found) == sorted(entry_ids[200:])


@pytest.mark.each_server
async def test_entries_deleted_while_pending_do_no_harm_to_a_sweep(
    consumer: Consumer, other: Consumer, redis: Redis, keys: Keys
) -> None:
    entry_ids = await add(redis, keys, *"abcd")
    await other.read(4, NOW)
    await redis.xdel(keys.stream, entry_ids[0], entry_ids[2])
    await age(redis, keys, "two", [entry_ids[1], entry_ids[3]], LEASE + 1)
    # A claim would clear the deleted ones: they must look idle without one.
    idle = await eventually(lambda: _claimable(consumer, 0.0))

    assert sorted(idle) == [entry_ids[1], entry_ids[3]]
    assert set(await pending(redis, keys)) == {entry_ids[1], entry_ids[3]}


async def _claimable(consumer: Consumer, idle: float) -> list[str]:
    claimed = await claim_idle(consumer, 10, idle)
    return ids(claimed)


# -- entries of a predecessor or of a lost reply -------------------------------------------------------------


async def test_a_great_number_of_stranded_entries_is_reclaimed_in_parts(
    consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    entry_ids = await add(redis, keys, *(f"order-{number}" for number in range(250)))
    known = ids(await consumer.read(50, NOW))
    await redis.xreadgroup(GROUP, "one", {keys.stream: ">"}, count=200)
    sizes = []

    while own := await consumer.claim_own(80, refs(keys, known)):
        known += ids(own)
        sizes.append(len(own))

    assert max(sizes) == 80
    assert sum(sizes) == 200
    assert sorted(known) == sorted(entry_ids)


async def test_stranded_entries_that_were_deleted_do_no_harm(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    entry_ids = await add(redis, keys, *"abc")
    await redis.xreadgroup(GROUP, "one", {keys.stream: ">"})
    await redis.xdel(keys.stream, entry_ids[1])

    own = await consumer.claim_own(10, [])

    assert orders(own) == ["a", "c"]


# -- leases -------------------------------------------------------------------------------------------------------


@pytest.mark.each_server
async def test_what_was_lost_is_reported_and_never_stolen_back(
    consumer: Consumer, other: Consumer, redis: Redis, keys: Keys
) -> None:
    held, taken, acked, deleted = await add(redis, keys, *"abcd")
    await consumer.read(4, NOW)
    await age(redis, keys, "one", [taken], LEASE + 1)
    await claim_idle(other, 10, LEASE)
    await age(redis, keys, "two", [taken], LEASE / 2)
    await other.ack(refs(keys, [acked]))
    await redis.xdel(keys.stream, deleted)

    lost = await consumer.renew(refs(keys, [held, taken, acked]))

    assert lost == set(refs(keys, [taken]))
    assert (await pending(redis, keys))[taken] == ("two", 2)
    assert await idle_of(redis, keys, taken) >= LEASE / 2 * 1000
    # An entry that is finished or gone from the stream has no owner to yield to.
    assert await consumer.renew(refs(keys, [deleted])) == set()
    assert await consumer.renew(refs(keys, [deleted])) == set()


# -- losing the group, the key, the server ------------------------------------------------------------------------

Call = Callable[[Consumer, Delivery], Awaitable[object]]
CALLS: dict[str, Call] = {
    "read": lambda consumer, _: consumer.read(1, NOW),
    "claim_own": lambda consumer, _: consumer.claim_own(1, []),
    "claim_idle": lambda consumer, _: claim_idle(consumer, 1, LEASE),
    "ack": lambda consumer, delivery: consumer.ack([delivery.entry]),
    "reschedule": lambda consumer, delivery: consumer.reschedule(delivery, 0.0, 2),
    "dead_letter": lambda consumer, delivery: consumer.dead_letter(delivery, DeadReason.REJECTED, "no"),
    "renew": lambda consumer, delivery: consumer.renew([delivery.entry]),
    "release": lambda consumer, delivery: consumer.release([delivery]),
    "leave": lambda consumer, _: consumer.leave(),
    "remove_silent": lambda consumer, _: consumer.remove_stale(300.0),
    "ensure_group": lambda consumer, _: consumer.ensure_group(),
}
WITH_MOVE_DUE = {**CALLS, "move_due": lambda consumer, _: consumer.move_due(1)}
DELIVERY = Delivery(EntryRef("ingest:{orders}:stream", "1-1"), "a", 1.0, 1, 1, None, {b"order_id": b"a"})


@pytest.mark.each_server
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_after_the_stream_was_lost_nothing_added_since_is_skipped(
    consumer: Consumer, redis: Redis, keys: Keys, call: Call
) -> None:
    await add(redis, keys, "lost")
    [held] = await consumer.read(1, NOW)
    await redis.delete(keys.stream)
    await add(redis, keys, "b", "c")

    await call(consumer, held)

    deliveries = await eventually(lambda: consumer.read(10, NOW))
    assert orders(deliveries)[-1] == "c"
    assert set(await pending(redis, keys)) >= set(ids(deliveries))
    assert await redis.xlen(keys.stream) == 2


async def test_a_group_that_was_destroyed_sees_everything_again(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    await add(redis, keys, *"abc")
    await consumer.read(2, NOW)
    await redis.xgroup_destroy(keys.stream, GROUP)

    assert orders(await consumer.read(10, NOW)) == ["a", "b", "c"]


async def test_a_server_that_forgot_the_scripts_is_sent_them_again(
    consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    entry_ids = await add(redis, keys, *"ab")
    await consumer.read(2, NOW)
    await consumer.ack(refs(keys, entry_ids[:1]))
    await redis.script_flush()

    assert await consumer.ack(refs(keys, entry_ids[1:])) == 1


@pytest.mark.each_server
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_key_of_another_type_is_for_a_person_to_put_right(
    consumer: Consumer, redis: Redis, keys: Keys, call: Call
) -> None:
    await redis.delete(keys.stream)
    await redis.set(keys.stream, "not a stream")

    delivery = Delivery(EntryRef(keys.stream, "1-1"), "a", 1.0, 1, 1, None, {b"order_id": b"a"})

    with pytest.raises(UserError, match="wrong kind of value"):
        await call(consumer, delivery)


@pytest.mark.parametrize("password", ["wrong", ""])
async def test_a_refused_credential_is_for_a_person_to_put_right(servers: Any, queue_name: str, password: str) -> None:
    server: ValkeyServer = servers.valkey
    account = f":{password}@" if password else ""

    with pytest.raises(QueueRefused) as refused:
        async with connect(f"redis://{account}127.0.0.1:{server.port}", queue_name, "one"):
            pass

    assert server.password not in str(refused.value)


async def test_a_database_that_the_server_does_not_have_is_for_a_person_to_put_right(
    redis_url: str, queue_name: str
) -> None:
    with pytest.raises(UserError):
        async with connect(redis_url.removesuffix("/0") + "/99999", queue_name, "one"):
            pass


@pytest.mark.each_server
async def test_what_an_acl_forbids_is_for_a_person_to_put_right(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    await own_redis.execute_command("ACL SETUSER reader on >pw ~* +@read +@connection +evalsha +script")
    url = own_valkey.url.replace(f":{own_valkey.password}@", "reader:pw@")

    async with connect(url, "orders", "one") as consumer:
        for name, call in WITH_MOVE_DUE.items():
            if name == "move_due":
                continue  # writes only where something is due
            with pytest.raises(QueueRefused):
                await call(consumer, DELIVERY)


@pytest.mark.each_server
async def test_at_the_memory_limit_a_move_is_whole_or_waits(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    # A script is stopped for lack of memory at its first write only: what begins with an ack goes through to its end.
    keys = Keys.of("orders")
    async with connect(own_valkey.url, "orders", "one") as consumer:
        await consumer.ensure_group()
        acked, later, dead_lettered = await add(own_redis, keys, "a", "b", "c")
        by_id = {delivery.entry.id: delivery for delivery in await consumer.read(3, NOW)}
        await own_redis.config_set("maxmemory", 1)

        assert await consumer.ack(refs(keys, [acked])) == 1
        assert await consumer.reschedule(by_id[later], 0.0, 2)
        assert await consumer.dead_letter(by_id[dead_lettered], DeadReason.NOT_FOUND, "404")
        assert await own_redis.xlen(keys.stream) == 0
        assert await own_redis.zrange(keys.retry, 0, -1) == [later.encode()]
        assert await own_redis.xlen(keys.dead) == 1
        # Into the stream goes no more than comes out of the retry set.
        assert await consumer.move_due(10) == 1
        assert await own_redis.xlen(keys.express) == 1


@pytest.mark.each_server
async def test_at_the_memory_limit_the_sweep_goes_on(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    keys = Keys.of("orders")
    async with connect(own_valkey.url, "orders", "one") as consumer:
        await consumer.ensure_group()
        released, dropped = await add(own_redis, keys, "released", "dropped")
        first, _ = await consumer.read(2, NOW)
        await consumer.release([first])
        await own_redis.xack(keys.stream, GROUP, dropped)
        await own_redis.config_set("maxmemory", 1)

        assert (await consumer.sweep(LEASE)).restored == 1
        found = await consumer.claim_abandoned(10)
        assert ids(found.released) == [dropped, released], "what was put back came first"


@pytest.mark.each_server
async def test_at_the_memory_limit_a_worker_can_start_and_live(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    keys = Keys.of("orders")
    async with connect(own_valkey.url, "orders", "one") as consumer:
        await consumer.ensure_group()
        await add(own_redis, keys, "a")
    await own_redis.config_set("maxmemory", 1)

    async with connect(own_valkey.url, "orders", "two") as consumer:
        assert await consumer.ensure_group() is False
        assert (await consumer.heartbeat(LEASE)).is_first
        assert orders(await consumer.read(1, NOW)) == ["a"]


@pytest.mark.each_server
async def test_a_group_that_is_missing_cannot_be_made_at_the_memory_limit(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    await own_redis.config_set("maxmemory", 1)

    async with connect(own_valkey.url, "orders", "one") as consumer:
        with pytest.raises(QueueFull):
            await consumer.ensure_group()


async def test_a_server_that_is_stopped_is_unavailable_and_then_works_again(own_valkey: ValkeyServer) -> None:
    async with connect(own_valkey.url, "orders", "one") as consumer:
        await consumer.ensure_group()
        own_valkey.stop("nosave")
        for call in WITH_MOVE_DUE.values():
            with pytest.raises(QueueUnavailable):
                await call(consumer, DELIVERY)
        own_valkey.start()

        # Started without data: the group is gone as well.
        for call in WITH_MOVE_DUE.values():
            await call(consumer, DELIVERY)


async def test_a_server_that_dies_during_a_read_is_unavailable(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    async def is_blocked() -> bool:
        return any(client["cmd"] == "xreadgroup" for client in await own_redis.client_list())

    async with connect(own_valkey.url, "orders", "one") as consumer:
        await consumer.ensure_group()
        reading = asyncio.create_task(consumer.read(1, block=30.0))
        await eventually(is_blocked)
        own_valkey.kill()

        with pytest.raises(QueueUnavailable):
            await reading


async def test_a_cancellation_that_came_while_the_task_was_busy_is_not_swallowed(redis_url: str) -> None:
    async def busy() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with translated():
            await client.ping()

    async with control_client(redis_url) as client:
        await client.ping()
        task = asyncio.create_task(busy())
        await asyncio.wait([task])

    assert task.cancelled()


async def test_a_failover_during_a_read_is_unavailable(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    async def is_blocked() -> bool:
        return any(client["cmd"] == "xreadgroup" for client in await own_redis.client_list())

    async with connect(own_valkey.url, "orders", "one") as consumer:
        await consumer.ensure_group()
        reading = asyncio.create_task(consumer.read(1, block=30.0))
        await eventually(is_blocked)
        await own_redis.execute_command("REPLICAOF 127.0.0.1 1")  # now a replica: UNBLOCKED

        with pytest.raises(QueueUnavailable):
            await reading
        with pytest.raises(QueueUnavailable):
            await consumer.read(1, NOW)


@pytest.mark.each_server
@pytest.mark.parametrize(
    "spoil",
    [
        ["REPLICAOF 127.0.0.1 1"],  # READONLY
        ["CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"],  # MASTERDOWN
        ["CONFIG SET min-replicas-to-write 1"],  # NOREPLICAS
    ],
    ids=["a replica", "a replica without its primary", "a primary without its replicas"],
)
async def test_a_server_that_cannot_take_writes_now_is_unavailable(
    own_valkey: ValkeyServer, own_redis: Redis, spoil: list[str]
) -> None:
    await own_redis.xadd(Keys.of("orders").stream, {"order_id": "a"})
    async with connect(own_valkey.url, "orders", "one") as consumer:
        await consumer.ensure_group()
        [delivery] = await consumer.read(1, NOW)
        for command in spoil:
            await own_redis.execute_command(command)

        for name in ("read", "claim_own", "claim_idle", "ack", "reschedule", "dead_letter", "release", "renew"):
            with pytest.raises(QueueUnavailable):
                await CALLS[name](consumer, delivery)
