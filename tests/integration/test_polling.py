"""Orders without an announcement are found in the list of the shop."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from integration.listed_shop import ListedShop, listed_shop
from integration.scene import Scene, ids
from support import eventually

from ingest.domain.fetch.listed import ListedPage, ListShape, PageRequest
from ingest.domain.operating.polling import PollResult, PollState
from ingest.operations.poll.look import Look
from ingest.operations.poll.turns import PollPlan, TurnLost, Turns
from ingest.queue.produce.producer import Producer
from ingest.store.connections.pool import Pool
from ingest.store.polls import Polls, read_polls
from ingest.upstream.session import utc_now


@pytest.fixture
async def shop() -> AsyncIterator[ListedShop]:
    async with listed_shop() as shop:
        yield shop


async def stored(scene: Scene) -> dict[str, str]:
    return {order_id: row["status"] for order_id, row in (await scene.rows()).items()}


async def all_stored(scene: Scene, shop: ListedShop) -> None:
    wanted = {order_id: at.isoformat() for order_id, at in shop.orders.items()}

    async def same() -> bool:
        return await stored(scene) == wanted

    await eventually(same, within=20)


async def looks(shop: ListedShop, count: int) -> None:
    """Wait until this many further readings have begun."""
    wanted = first_pages(shop) + count

    async def begun() -> bool:
        return first_pages(shop) >= wanted

    await eventually(begun, within=20)


def first_pages(shop: ListedShop) -> int:
    return sum(values["page"] == "1" for values in shop.lists)


async def state_of(scene: Scene) -> PollState | None:
    async with Pool.open(scene.dsn, size=1) as pool:
        return (await read_polls(pool, [""])).get("")


async def test_orders_that_nobody_announces_are_stored_once(scene: Scene, shop: ListedShop) -> None:
    # So long ago that no further change could have the same time.
    shop.change(*ids(25), "SO/1 ä", ago=5)

    async with scene.worker(**shop.settings(overlap="60s")) as worker:
        await all_stored(scene, shop)
        await looks(shop, 3)
        found = worker.metric("ingest_polled_orders_total", result="enqueued")
        lag = worker.metric("ingest_source_lag_seconds")

    assert set(shop.fetches.values()) == {1}
    assert found == 26
    assert 0 < lag < 5


async def test_a_changed_order_is_fetched_again_and_an_erased_one_is_not(scene: Scene, shop: ListedShop) -> None:
    shop.change("a", "b", ago=30)

    async with scene.worker(**shop.settings(overlap="60s")):
        await all_stored(scene, shop)
        await scene.sql("DELETE FROM orders WHERE order_id = 'b'")
        await scene.sql("INSERT INTO erased_orders (source, order_id) VALUES ('', 'b')")
        shop.change("a", "b", ago=5)

        async def updated() -> bool:
            return (await stored(scene)).get("a") == shop.orders["a"].isoformat()

        await eventually(updated, within=20)
        await looks(shop, 2)

    assert shop.fetches == {"a": 2, "b": 1}


async def test_a_shorter_interval_takes_effect_before_the_reading_that_was_planned(
    scene: Scene, shop: ListedShop
) -> None:
    async with scene.worker(**shop.settings() | {"poll": 3600.0}):
        await looks(shop, 1)

        async def planned() -> bool:
            state = await state_of(scene)
            return state is not None and state.due_in > 3000

        await eventually(planned)
    shop.change("a")

    async with scene.worker(**shop.settings()):
        await all_stored(scene, shop)


async def test_orders_that_become_visible_late_are_found_within_the_overlap(scene: Scene, shop: ListedShop) -> None:
    async with scene.worker(**shop.settings()):
        await looks(shop, 3)
        shop.change("late", ago=8)
        await all_stored(scene, shop)


async def test_a_wider_look_back_finds_orders_that_become_visible_much_later(scene: Scene, shop: ListedShop) -> None:
    shop.change("much later", ago=3000)
    shop.change("a", "b", ago=5)

    async with scene.worker(**shop.settings(look_back="1h")):
        await all_stored(scene, shop)
        await looks(shop, 2)

    span = [datetime.fromisoformat(values["since"]) for values in shop.lists if values["page"] == "1"]
    # Once an hour only.
    assert span[0] < span[-1] - timedelta(minutes=50)
    assert span[1] > span[-1] - timedelta(minutes=1)


@pytest.mark.parametrize(("hours", "has_versions"), [(-1, False), (1, False), (1, True)])
async def test_a_shop_with_another_clock_is_polled_completely(
    scene: Scene, shop: ListedShop, hours: int, *, has_versions: bool
) -> None:
    shop.ahead, shop.has_versions = timedelta(hours=hours), has_versions

    async with scene.worker(**shop.settings()):
        await looks(shop, 2)
        shop.change("a", "b")
        await all_stored(scene, shop)
        await looks(shop, 2)
        shop.change("b")
        await all_stored(scene, shop)
        await looks(shop, 1)

    # Once more after the second of each change. Without versions, an order is fetched until a fetch is certainly later than the change,
    # in two or three polls of a second.
    assert shop.fetches["a"] <= (2 if has_versions else 5)
    assert shop.fetches["b"] <= (4 if has_versions else 10)


async def test_whole_documents_of_the_list_need_no_second_request(scene: Scene, shop: ListedShop) -> None:
    shop.change(*ids(25))

    async with scene.worker(**shop.settings(complete=True)):
        await all_stored(scene, shop)

    assert not shop.fetches


async def test_a_list_that_fails_is_recorded_and_read_again_from_the_same_position(
    scene: Scene, shop: ListedShop
) -> None:
    shop.fails = [403, 500, 404]
    shop.change("a")

    async with scene.worker(**shop.settings()) as worker:

        async def failed() -> PollState | None:
            state = await state_of(scene)
            return state if state is not None and state.failures == 2 else None

        state = await eventually(failed, within=20)
        await scene.enqueue("a")
        await all_stored(scene, shop)

        async def succeeded() -> PollState | None:
            state = await state_of(scene)
            return state if state is not None and state.looked_at is not None else None

        recovered = await eventually(succeeded, within=20)
        assert worker.metric("ingest_polls_total", result="failed") == 3

    assert state is not None
    assert state.error == "HTTP 500"
    assert state.looked_at is None
    assert (recovered.failures, recovered.error) == (0, None)
    starts = [values["since"] for values in shop.lists[:4]]
    assert starts == starts[:1] * 4


async def test_one_process_polls_and_another_continues_when_it_dies(scene: Scene, shop: ListedShop) -> None:
    settings = shop.settings()
    async with scene.worker("a", **settings) as first, scene.worker("b", **settings), scene.worker("c", **settings):
        began = first_pages(shop)
        started_at = asyncio.get_running_loop().time()
        await looks(shop, 4)
        elapsed = asyncio.get_running_loop().time() - started_at
        assert first_pages(shop) - began <= elapsed + 2
        await first.die()
        shop.change(*ids(30))
        await all_stored(scene, shop)


async def test_a_poller_that_dies_while_it_reads_is_replaced_and_no_order_is_lost(
    scene: Scene, shop: ListedShop
) -> None:
    shop.change(*ids(60))
    async with scene.worker("a", **shop.settings()) as first:

        async def reading() -> bool:
            return len(shop.lists) >= 3

        await eventually(reading, within=20)
        await first.die()

    async with scene.worker("b", **shop.settings()):
        await all_stored(scene, shop)


async def test_a_reading_of_a_sorted_list_that_fails_half_way_continues_there(scene: Scene, shop: ListedShop) -> None:
    first = shop.now() - timedelta(seconds=300)
    shop.orders |= {f"o-{number}": first + timedelta(seconds=5 * number) for number in range(60)}
    shop.fails = [0, 0, 0, 500]
    await scene.sql(
        "INSERT INTO polls (source, position, holder, fence, next_at) VALUES ('', $1, 'x', 1, now())",
        first - timedelta(seconds=10),
    )

    async with scene.worker("a", **shop.settings(overlap="1s")):
        await all_stored(scene, shop)

    starts = [datetime.fromisoformat(values["since"]) for values in shop.lists]
    # Three pages of ten orders, of which some are on two pages.
    assert starts[4] - starts[0] >= timedelta(seconds=90)
    assert set(shop.fetches.values()) == {1}


async def test_a_time_in_the_future_is_not_the_position_of_a_reading_that_fails(scene: Scene, shop: ListedShop) -> None:
    first = shop.now() - timedelta(seconds=300)
    shop.orders |= {f"o-{number}": first + timedelta(seconds=5 * number) for number in range(20)}
    shop.orders |= {f"future-{number}": shop.now() + timedelta(hours=1, seconds=number) for number in range(200)}
    shop.fails = [*[0] * 12, *[500] * 30]
    await scene.sql(
        "INSERT INTO polls (source, position, holder, fence, next_at) VALUES ('', $1, 'x', 1, now())",
        first - timedelta(seconds=10),
    )

    async def has_failed() -> bool:
        state = await state_of(scene)
        return state is not None and state.failures > 0

    async with scene.worker("a", **shop.settings(overlap="1s")):
        await eventually(has_failed, within=60)
        state = await state_of(scene)

    assert state is not None
    assert state.position <= utc_now()


async def test_a_worker_that_stops_lets_another_one_poll_immediately(scene: Scene, shop: ListedShop) -> None:
    async with scene.worker("a", **shop.settings()) as worker:
        await looks(shop, 2)
        await worker.stop()

    state = await state_of(scene)
    assert state is not None
    assert not state.is_reading


async def test_a_process_whose_turn_has_ended_does_not_change_the_position(scene: Scene) -> None:
    start = datetime(2026, 10, 1, tzinfo=UTC)
    async with Pool.open(scene.dsn, size=1) as pool:
        frozen, other = Polls(pool, "", "frozen"), Polls(pool, "", "other")
        turn = await frozen.take(start)
        assert turn is not None
        assert turn.position == start
        assert await other.take(start) is None
        await scene.sql("UPDATE polls SET leased_until = now() - interval '1 s'")
        taken = await other.take(datetime.now(UTC))

        assert taken is not None
        assert (taken.position, taken.fence) == (start, turn.fence + 1)
        later = datetime.now(UTC)
        assert not await frozen.renew(turn, later)
        assert not await frozen.advance(turn, PollResult(later), 0.0)
        assert not await frozen.fail(turn, later, "x", 0.0)
        assert not await frozen.release(turn, later)
        assert await other.advance(taken, PollResult(start + timedelta(hours=1)), 60.0)
        assert await other.take(start) is None
        again = await other.take(start, is_due=True)
        assert again is not None
        assert again.position == start + timedelta(hours=1)


async def test_a_process_that_is_started_again_under_its_name_need_not_wait_for_its_lease(scene: Scene) -> None:
    start = datetime(2026, 10, 1, tzinfo=UTC)
    async with Pool.open(scene.dsn, size=1) as pool:
        assert await Polls(pool, "", "same").take(start) is not None
        assert await Polls(pool, "", "same").take(start) is not None


async def test_a_queue_over_its_limit_delays_the_reading_and_loses_nothing(scene: Scene, shop: ListedShop) -> None:
    shop.change(*ids(40))

    async with scene.worker(**shop.settings(), backlog_limit=20):
        await all_stored(scene, shop)


class HangingList:
    """A list that never responds."""

    def __init__(self) -> None:
        self.is_cancelled = False

    shape = ListShape()

    async def page(self, request: PageRequest) -> ListedPage:
        try:
            await asyncio.Event().wait()
        finally:
            self.is_cancelled = True
        raise AssertionError(request)


async def test_a_reading_ends_when_its_turn_has_gone_to_another_process(scene: Scene) -> None:
    hanging = HangingList()
    async with Pool.open(scene.dsn, size=1) as pool, Producer.connect(scene.redis_url, scene.queue) as producer:
        frozen, other = Polls(pool, "", "frozen"), Polls(pool, "", "other")
        look = Look(pool, "", producer, utc_now, 100)
        turns = Turns(frozen, look, PollPlan(60.0, timedelta(), timedelta()), utc_now)
        turn = await turns.take()
        assert turn is not None
        reading = asyncio.create_task(turns.run(turn, hanging))
        await scene.sql("UPDATE polls SET leased_until = now() - interval '1 s'")
        taken = await other.take(utc_now())

        with pytest.raises(TurnLost):
            await reading

        assert hanging.is_cancelled
        state = await other.state()
        assert state is not None
        assert taken is not None
        assert (state.holder, state.position, state.is_reading) == ("other", turn.position, True)


async def test_a_cancelled_reading_gives_its_turn_away(scene: Scene) -> None:
    async with Pool.open(scene.dsn, size=1) as pool, Producer.connect(scene.redis_url, scene.queue) as producer:
        look = Look(pool, "", producer, utc_now, 100)
        turns = Turns(Polls(pool, "", "one"), look, PollPlan(60.0, timedelta(), timedelta()), utc_now)
        turn = await turns.take()
        assert turn is not None
        reading = asyncio.create_task(turns.run(turn, HangingList()))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

        assert await Polls(pool, "", "two").take(utc_now()) is not None


async def test_a_database_that_is_behind_the_clock_of_its_web_server_hides_no_order(
    scene: Scene, shop: ListedShop
) -> None:
    async with scene.worker(**shop.settings()) as worker:
        await looks(shop, 3)
        shop.change("a", "b", ago=600)
        await all_stored(scene, shop)
        await looks(shop, 2)
        shop.change("c", "d", ago=598)
        await all_stored(scene, shop)

        async def is_behind() -> bool:
            state = await state_of(scene)
            return state is not None and 590 < state.behind < 640

        await eventually(is_behind, within=20)
        assert worker.metric("ingest_poll_behind_seconds") > 590


async def test_an_empty_list_that_contradicts_the_reading_before_is_reported_and_costs_nothing(
    scene: Scene, shop: ListedShop
) -> None:
    shop.change("a", "b")
    async with scene.worker(**shop.settings()) as worker:
        await all_stored(scene, shop)
        await looks(shop, 2)
        shop.is_empty = True

        def failed() -> bool:
            return worker.metric("ingest_polls_total", result="failed") == 3

        await eventually(failed, within=60)
        shop.change("c")

        async def recovered() -> bool:
            state = await state_of(scene)
            return state is not None and state.failures == 0

        await eventually(recovered, within=60)
        await looks(shop, 2)
        shop.is_empty = False
        await all_stored(scene, shop)
        assert failed()


async def test_a_lost_position_begins_at_the_newest_stored_order(scene: Scene, shop: ListedShop) -> None:
    shop.change("a", "b", ago=4)
    async with scene.worker(**shop.settings()) as worker:
        await all_stored(scene, shop)
        await worker.stop()
    await scene.sql("UPDATE orders SET version = version - interval '1 h', updated_at = updated_at - interval '1 h'")
    await scene.sql("DELETE FROM polls")
    shop.change("c", ago=1800)

    async with scene.worker(**shop.settings()):
        await all_stored(scene, shop)
