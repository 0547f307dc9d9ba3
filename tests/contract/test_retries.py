"""The retry set on real servers, listed in pages, run now and dead-lettered once each, even while others change it."""

import msgspec
import pytest
from consumers import Consumer
from contract.heartbeating import GROUP, NOW
from dead_letter_entries import open_dead_letters
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.domain.orders.order_state import RetryEntry
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.partition_retries import PartitionRetries, Position

pytestmark = pytest.mark.topologies

EVERYTHING = Selection(everything=True)


@pytest.fixture
def retries(redis: Redis, queue_name: str) -> PartitionRetries:
    return PartitionRetries(redis, queue_name, GROUP)


async def wait(consumer: Consumer, redis: Redis, keys: Keys, *order_ids: str, **fields: str) -> None:
    """Have orders wait, each an hour and a second longer than the one before."""
    for order_id in order_ids:
        await redis.xadd(keys.stream, {"order_id": order_id, **fields})
    for number in range(len(order_ids)):
        [delivery] = await consumer.read(1, NOW)
        await consumer.reschedule(delivery, 3_600.0 + number, 3, RetryReason.TIMEOUT, "no answer")


async def put(redis: Redis, keys: Keys, name: str, due: float, *fields: str) -> None:
    await redis.hset(keys.retry_entries, name, msgspec.msgpack.encode(fields))  # type: ignore[arg-type]
    await redis.zadd(keys.retry, {name: due})


async def listed(retries: PartitionRetries, most: int) -> list[RetryEntry]:
    entries: list[RetryEntry] = []
    position: Position | None = Position()
    while position is not None:
        page = await retries.page(position, most)
        assert len(page.entries) <= most
        assert page.next is None or page.next.is_valid
        entries += page.entries
        position = page.next
    return entries


async def test_without_retries_there_is_nothing_to_list_or_change(retries: PartitionRetries) -> None:
    assert (await listed(retries, 10), await retries.count()) == ([], 0)
    assert [
        await retries.change(JobKind.RUN_NOW, EVERYTHING),
        await retries.change(JobKind.DEAD_LETTER, EVERYTHING, "me"),
    ] == [0, 0]


async def test_retries_are_listed_with_their_reason_the_soonest_first(
    retries: PartitionRetries, one: Consumer, redis: Redis, keys: Keys
) -> None:
    await wait(one, redis, keys, "b", "a", document="{}")

    first, second = await listed(retries, 10)

    assert (first.order_id, first.attempt, first.reason, first.error) == ("b", 3, "timeout", "no answer")
    assert first.announced_at is not None
    assert 3_500 < (first.next_try_at - first.announced_at).total_seconds() < 3_700
    assert second.order_id == "a"


@pytest.mark.parametrize("most", [1, 7, 10, 40])
async def test_pages_hold_all_retries_also_where_many_are_due_at_once(
    retries: PartitionRetries, redis: Redis, keys: Keys, most: int
) -> None:
    names = [f"{number}-{suffix}" for number in range(12) for suffix in ("0", "0/express")]
    for name in names:
        await put(redis, keys, name, 1_700_000_000_000, "order_id", name.replace("/", "."))
    await put(redis, keys, "99-0", 1_600_000_000_000.5, "order_id", "first")

    found = await listed(retries, most)

    assert [entry.order_id for entry in found[:1]] == ["first"]
    assert sorted(entry.entry_id for entry in found[1:]) == sorted(names)


async def test_a_page_costs_no_more_where_thousands_are_due_at_the_same_time(
    retries: PartitionRetries, redis: Redis, keys: Keys
) -> None:
    packed = msgspec.msgpack.encode(["order_id", "a"])
    names = [f"{number:05}-0" for number in range(20_000)]
    await redis.hset(keys.retry_entries, mapping=dict.fromkeys(names, packed))
    await redis.zadd(keys.retry, dict.fromkeys(names, 1_700_000_000_000))
    await redis.config_resetstat()

    page = await retries.page(Position("1700000000000", names[15_000]), 100)

    assert [entry.entry_id for entry in page.entries] == names[15_001:15_101]
    asked = await redis.info("commandstats")
    # Ten pages of ten, and about one look for each halving of 20,000.
    assert sum(stats["calls"] for name, stats in asked.items() if name.startswith("cmdstat_zrange")) <= 10 + 16


async def test_names_and_times_that_another_program_wrote_do_not_stop_the_list(
    retries: PartitionRetries, redis: Redis, keys: Keys
) -> None:
    packed = msgspec.msgpack.encode(["order_id", "a"])
    for name, due in ((b"\xff", 5.0), (b"\xff\xfe", 5.0), (b"x", float("-inf")), (b"y", float("inf")), (b"z", 1e30)):
        await redis.hset(keys.retry_entries, name, packed)  # type: ignore[arg-type]
        await redis.zadd(keys.retry, {name: due})

    assert len(await listed(retries, 1)) == 5


async def test_large_documents_are_not_handed_over(retries: PartitionRetries, redis: Redis, keys: Keys) -> None:
    for number in range(30):
        await put(redis, keys, f"{number}-0", number, "order_id", str(number), "document", "1" * 100_000)
    before = (await redis.info("stats"))["total_net_output_bytes"]

    assert len(await listed(retries, 100)) == 30

    assert (await redis.info("stats"))["total_net_output_bytes"] - before < 100_000


async def test_what_cannot_be_read_is_listed_without_an_order_and_dead_lettered_as_it_is(
    retries: PartitionRetries, redis: Redis, keys: Keys
) -> None:
    await redis.hset(keys.retry_entries, "1-0", "no entry")
    await redis.zadd(keys.retry, {"1-0": 1, "gone": 2})

    [entry] = await listed(retries, 10)
    moved = [await retries.change(JobKind.DEAD_LETTER, EVERYTHING, "me") for _ in range(2)]

    assert (entry.order_id, entry.entry_id, moved) == (None, "1-0", [1, 0])
    assert await redis.zrange(keys.retry, 0, -1) == [b"gone"]
    [(_, fields)] = await redis.xrange(keys.dead)
    assert (fields[b"reason"], fields[b"content"]) == (b"invalid_message", b"no entry")


async def test_progress_is_told_while_retries_are_searched(retries: PartitionRetries, redis: Redis, keys: Keys) -> None:
    packed = msgspec.msgpack.encode(["order_id", "a"])
    names = [f"{number}-0" for number in range(250)]
    await redis.hset(keys.retry_entries, mapping=dict.fromkeys(names, packed))
    await redis.zadd(keys.retry, dict.fromkeys(names, 4_000_000_000_000))
    counted: list[int] = []
    changed: list[int] = []

    await retries.survey(EVERYTHING, on_progress=counted.append)
    await retries.change(JobKind.RUN_NOW, EVERYTHING, on_progress=changed.append)

    assert counted == [100, 200, 250]
    assert changed == [0, 0, 0, 100, 200, 250]


async def test_retries_whose_names_are_not_text_are_changed_like_any_other(
    retries: PartitionRetries, redis: Redis, keys: Keys
) -> None:
    for name in (b"\xff\xfe", b"\\xff\\xfe", b""):
        await put(redis, keys, name, 9e12, "order_id", "a")  # type: ignore[arg-type]

    run = await retries.change(JobKind.RUN_NOW, EVERYTHING)
    due = {due for _, due in await redis.zrange(keys.retry, 0, -1, withscores=True)}
    moved = await retries.change(JobKind.DEAD_LETTER, Selection(frozenset({"a"})), "me")

    assert (run, moved) == (3, 3)
    assert max(due) < 9e12
    assert await redis.exists(keys.retry, keys.retry_entries) == 0
    assert await redis.xlen(keys.dead) == 3


async def test_a_retry_that_is_run_now_is_moved_by_the_next_look(
    retries: PartitionRetries, one: Consumer, redis: Redis, keys: Keys
) -> None:
    await wait(one, redis, keys, "a", "b", "c")

    count = await retries.change(JobKind.RUN_NOW, Selection(frozenset({"a", "c", "nobody"})))

    assert count == 2
    assert await eventually(lambda: one.move_due(10)) == 2
    assert [delivery.order_id for delivery in await one.read(10, NOW)] == ["a", "c"]
    assert [entry.order_id for entry in await listed(retries, 10)] == ["b"]


@pytest.mark.each_server
async def test_at_the_memory_limit_retries_are_run_now_and_dead_lettered(own_redis: Redis) -> None:
    retries, keys = PartitionRetries(own_redis, "orders", GROUP), Keys.of("orders")
    for name in ("1-0", "2-0"):
        await put(own_redis, keys, name, 2e13, "order_id", name)
    await own_redis.config_set("maxmemory", 1)

    assert await retries.change(JobKind.RUN_NOW, EVERYTHING) == 2
    assert await retries.change(JobKind.DEAD_LETTER, EVERYTHING, "me") == 2

    assert (await retries.count(), await own_redis.xlen(keys.dead)) == (0, 2)


async def test_a_retry_that_is_dead_lettered_keeps_what_it_is_and_can_be_replayed(
    retries: PartitionRetries, one: Consumer, redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    await wait(one, redis, keys, "a", "b", document="{}", tenant="x")

    moved = [
        await retries.change(JobKind.DEAD_LETTER, Selection(reasons=frozenset({"timeout"})), "cli:me") for _ in range(2)
    ]
    async with open_dead_letters(redis_url, queue_name) as dead:
        entries = [entry async for page in dead.oldest_first(Selection(everything=True)) for entry in page.entries]
        await dead.change(JobKind.REPLAY, Selection(everything=True))
    again = await one.read(10, NOW)

    assert moved == [2, 0]
    assert [(entry.order_id, entry.reason, entry.attempts, entry.worker) for entry in entries] == [
        ("a", "attempts_exhausted", 2, "cli:me"),
        ("b", "attempts_exhausted", 2, "cli:me"),
    ]
    assert entries[0].error == "dead-lettered by hand; the last attempt: no answer"
    assert entries[0].first_enqueued_at is not None
    assert entries[0].fields[b"tenant"] == b"x"
    assert [(delivery.order_id, delivery.document, delivery.attempt) for delivery in again] == [
        ("a", b"{}", 1),
        ("b", b"{}", 1),
    ]
    assert [await redis.zcard(key) for key in (keys.retry, keys.retry_announced)] == [0, 0]
    assert await redis.hlen(keys.retry_entries) == 0


async def test_of_an_erased_order_no_dead_letter_is_made(
    retries: PartitionRetries, one: Consumer, redis: Redis, keys: Keys
) -> None:
    await wait(one, redis, keys, "a")
    await redis.zadd(keys.erased, {"a": 1})

    assert await retries.change(JobKind.DEAD_LETTER, EVERYTHING, "me") == 0

    assert await redis.exists(keys.dead, keys.retry, keys.retry_entries) == 0


@pytest.mark.parametrize("change", ["run_now", "dead_letter"])
async def test_what_is_scheduled_after_a_survey_is_not_changed_with_it(
    retries: PartitionRetries, one: Consumer, redis: Redis, keys: Keys, change: str
) -> None:
    await wait(one, redis, keys, "a", "b")
    survey = await retries.survey(EVERYTHING)
    await wait(one, redis, keys, "later")
    [gone, *_] = survey.names
    await redis.zrem(keys.retry, gone)
    await redis.hdel(keys.retry_entries, gone)

    calls = {
        "run_now": lambda: retries.change(JobKind.RUN_NOW, survey),
        "dead_letter": lambda: retries.change(JobKind.DEAD_LETTER, survey, "me"),
    }
    done = await calls[change]()

    assert (survey.count, done) == (2, 1)
    [later] = [entry for entry in await listed(retries, 10) if entry.order_id == "later"]
    assert later.next_try_at is not None
    assert (later.next_try_at.timestamp() - (await redis.time())[0]) > 3_000


async def test_content_that_is_no_entry_becomes_a_dead_letter_when_it_is_due_and_stops_no_other(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.hset(keys.retry_entries, "1-0", "no entry")
    await redis.hset(keys.retry_entries, "2-0", msgspec.msgpack.encode(["order_id", "a"]))  # type: ignore[arg-type]
    await redis.zadd(keys.retry, {"1-0": 1, "2-0": 2})

    assert await one.move_due(10) == 2

    [(_, letter)] = await redis.xrange(keys.dead)
    assert (letter[b"reason"], letter[b"content"]) == (b"invalid_message", b"no entry")
    assert [fields[b"order_id"] for _, fields in await redis.xrange(keys.express)] == [b"a"]
