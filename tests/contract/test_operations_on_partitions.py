"""Operations on a queue with several partitions, one of them a former one, on real servers."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from dead_letter_entries import dead_fields
from redis.asyncio import Redis

from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.domain.orders.order_state import DeadEntry, QueuedEntry, RetryEntry
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.erasing import QueueEraser, Removed
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.partition_retries import Position
from ingest.queue.operate.failed.retries import Retries
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.order_search import OrderSearch
from ingest.queue.operate.queue_parts import ReadLayout
from ingest.queue.operate.scanner import Location, QueueScanner

pytestmark = pytest.mark.topologies

GROUP = "ingest"
ORDERS = [f"order-{number}" for number in range(30)]
EVERYTHING = Selection(everything=True)
ALL_RETRIES = Selection(everything=True)
LATER = 4_000_000_000_000


@pytest.fixture
def layout(queue_name: str) -> Layout:
    return Layout(queue_name, 3, (1,), 2)


@pytest.fixture
def read_layout(layout: Layout) -> ReadLayout:
    async def read() -> Layout:
        return layout

    return read


@pytest.fixture
def dead(redis: Redis, read_layout: ReadLayout) -> DeadLetters:
    return DeadLetters(redis, read_layout)


async def enqueue(redis: Redis, layout: Layout, orders: list[str]) -> None:
    for order_id in orders:
        await redis.xadd(Keys.of(layout.queue_of_order(order_id)).stream, {"order_id": order_id})


async def order_ids(redis: Redis, stream: str) -> list[str]:
    entries: Any = await redis.xrange(stream)
    return [fields[b"order_id"].decode() for _, fields in entries]


async def schedule(redis: Redis, queue: str, order_id: str, due: float) -> None:
    keys = Keys.of(queue)
    await redis.hset(keys.retry_entries, order_id, msgspec.msgpack.encode(["order_id", order_id]))
    await redis.zadd(keys.retry, {order_id: due})


async def test_the_state_is_the_sum_of_the_partitions(redis: Redis, layout: Layout, read_layout: ReadLayout) -> None:
    await enqueue(redis, layout, ORDERS)
    await redis.xadd(Keys.of(layout.queue).stream, {"order_id": "former", "enqueued_at": "1000000000000"})
    await schedule(redis, layout.current[1], "retried", LATER)
    await redis.xadd(Keys.of(layout.current[2]).dead, dead_fields("dead"))
    monitor = Monitor(redis, read_layout, GROUP)

    state = await monitor.state()

    assert (state.depth, state.retries, state.dead) == (31, 1, 1)
    assert state.oldest_age is not None
    assert state.oldest_age > 500_000_000
    assert set(await monitor.partitions()) == {layout.queue, *layout.current}


async def test_a_consumer_of_several_partitions_is_listed_once(
    redis: Redis, layout: Layout, read_layout: ReadLayout
) -> None:
    await enqueue(redis, layout, ORDERS)
    for queue in layout.current:
        keys = Keys.of(queue)
        await redis.xgroup_create(keys.stream, GROUP, "0")
        await redis.xreadgroup(GROUP, "one", {keys.stream: ">"}, count=2)
    await redis.zadd(Keys.of(layout.current[0]).alive, {"one": LATER})
    await redis.zadd(Keys.of(layout.queue).alive, {"one": 1_000, "gone": 1_000})

    one, gone = sorted(await Monitor(redis, read_layout, GROUP).consumers(), key=lambda each: -each.pending)

    assert (one.name, one.pending, one.state, one.stale_for) == ("one", 6, "alive", None)
    assert (gone.name, gone.pending, gone.state) == ("gone", 0, "stale")


@pytest.mark.parametrize("most", [1, 7, 100])
async def test_dead_letters_are_paged_newest_first_over_the_partitions(
    dead: DeadLetters, redis: Redis, layout: Layout, most: int
) -> None:
    for number, order_id in enumerate(ORDERS):
        await redis.xadd(Keys.of(layout.queue_of_order(order_id)).dead, dead_fields(order_id), id=f"{number + 1}-0")

    found, before, pages = list[str](), None, 0
    while before is not None or not pages:
        entries, before, _ = await dead.summaries(EVERYTHING, before, most)
        assert len(entries) <= most + len(layout.queues)
        found += [entry.order_id or "" for entry in entries]
        pages += 1

    assert found == ORDERS[::-1]


async def test_an_id_names_one_dead_letter_although_two_partitions_have_used_it(
    dead: DeadLetters, redis: Redis, layout: Layout
) -> None:
    for queue in (layout.queue, layout.current[0], layout.current[2]):
        await redis.xadd(Keys.of(queue).dead, dead_fields(f"order of {queue}"), id="5-0")
    entries, _, _ = await dead.summaries(EVERYTHING, None, 10)
    assert {entry.entry_id for entry in entries} == {"5-0", "5-0:0", "5-0:2"}

    shown = await dead.get("5-0:2")
    survey = await dead.survey(Selection(ids=frozenset({"5-0:2", "6-0"})))
    change = await dead.change(JobKind.DROP, Selection(ids=frozenset({"5-0:2"})), newest=survey.newest)

    assert shown is not None
    assert shown.order_id == f"order of {layout.current[2]}"
    assert (survey.count, sorted(survey.missing), change.done) == (1, ["6-0"], 1)
    assert await dead.get("5-0:2") is None
    assert await dead.get("5-0") is not None


async def test_a_replay_puts_each_dead_letter_back_into_its_partition_up_to_the_newest_of_the_survey(
    dead: DeadLetters, redis: Redis, layout: Layout
) -> None:
    for order_id in ORDERS:
        await redis.xadd(Keys.of(layout.queue_of_order(order_id)).dead, dead_fields(order_id))
    survey = await dead.survey(EVERYTHING)
    await redis.xadd(Keys.of(layout.queue_of_order("later")).dead, dead_fields("later"))
    progress: list[int] = []

    change = await dead.change(
        JobKind.REPLAY, EVERYTHING, newest=survey.newest, on_progress=lambda so_far: progress.append(so_far.done)
    )

    assert (survey.count, change.done, change.gone) == (30, 30, 0)
    assert progress == sorted(progress)
    replayed = {
        order_id: queue for queue in layout.queues for order_id in await order_ids(redis, Keys.of(queue).express)
    }
    assert replayed == {order_id: layout.queue_of_order(order_id) for order_id in ORDERS}
    assert await order_ids(redis, Keys.of(layout.queue_of_order("later")).dead) == ["later"]


@pytest.mark.parametrize("most", [1, 7, 100])
async def test_retries_are_paged_soonest_first_over_the_partitions(
    redis: Redis, layout: Layout, read_layout: ReadLayout, most: int
) -> None:
    for number, order_id in enumerate(ORDERS):
        # Groups of five are due at the same time.
        await schedule(redis, layout.queue_of_order(order_id), order_id, LATER + number // 5)
    retries = Retries(redis, read_layout, GROUP)

    found: list[RetryEntry] = []
    position: Position | None = Position()
    while position is not None:
        page = await retries.page(position, most)
        found += page.entries
        position = page.next

    assert Counter(entry.order_id for entry in found) == Counter(ORDERS)
    assert [entry.next_try_at for entry in found] == sorted(entry.next_try_at for entry in found)


async def test_retries_are_run_and_dead_lettered_in_every_partition(
    redis: Redis, layout: Layout, read_layout: ReadLayout
) -> None:
    for order_id in ORDERS:
        await schedule(redis, layout.queue_of_order(order_id), order_id, LATER)
    retries = Retries(redis, read_layout, GROUP)

    survey = await retries.survey(Selection(ids=frozenset({*ORDERS[:10], "another"})))
    moved = await retries.change(JobKind.DEAD_LETTER, survey, "me")
    run = await retries.change(JobKind.RUN_NOW, ALL_RETRIES)

    assert (survey.count, sorted(survey.missing), moved.done, run.done) == (10, ["another"], 10, 20)
    state = await Monitor(redis, read_layout, GROUP).state()
    assert (state.dead, state.retries, state.retries_due) == (10, 20, 20)


async def test_an_order_is_found_and_erased_in_current_and_former_partitions(
    redis: Redis, layout: Layout, read_layout: ReadLayout
) -> None:
    current, former = Keys.of(layout.queue_of_order("a")), Keys.of(layout.queue)
    await redis.xadd(current.stream, {"order_id": "a"}, id="1-0")
    await redis.xadd(current.dead, dead_fields("a"), id="2-0")
    await redis.xadd(former.dead, dead_fields("a"), id="3-0")
    await schedule(redis, layout.queue, "a", LATER)

    found = await OrderSearch(redis, read_layout).find(["a", "b"])
    removed = await QueueEraser(redis, read_layout, GROUP).erase(["a", "b"])

    suffix = layout.queue_of_order("a").removeprefix(layout.queue)
    entries = {(type(entry), entry.entry_id) for entry in found.entries["a"]}
    assert entries == {
        (QueuedEntry, f"1-0{suffix}"),
        (DeadEntry, f"2-0{suffix}"),
        (DeadEntry, "3-0"),
        (RetryEntry, "a"),
    }
    assert set(found.entries) == {"a"}
    assert removed == {"a": Removed(1, 2), "b": Removed()}
    assert [await redis.zscore(keys.erased, "a") is not None for keys in (current, former)] == [True, True]
    assert await redis.xlen(current.dead) == await redis.xlen(former.dead) == await redis.zcard(former.retry) == 0


async def test_a_scan_sees_every_partition(redis: Redis, layout: Layout, read_layout: ReadLayout) -> None:
    await enqueue(redis, layout, ORDERS)
    await redis.xadd(Keys.of(layout.queue).stream, {"order_id": "former"})
    await schedule(redis, layout.current[0], "retried", LATER)
    await redis.xadd(Keys.of(layout.current[1]).dead, dead_fields("dead"))
    scanner = QueueScanner(redis, read_layout, GROUP)

    queued = {(found.order_id, found.place) async for page in scanner.queued() for found in page}
    dead = [found.order_id async for page in scanner.dead() for found in page]

    assert queued == {*((each, Location.WAITING) for each in [*ORDERS, "former"]), ("retried", Location.RETRYING)}
    assert dead == ["dead"]
