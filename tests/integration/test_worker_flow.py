"""A worker assembled from its real parts, on real servers: what each delivery meets on its way."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from consumers import Consumer
from integration.scene import GROUP, Scene, assert_right, document, ids, unguarded
from redelivery import claim_idle, delivered, refs
from support import eventually

from ingest.domain.deliveries.delivery import Delivery, Effect, EntryRef
from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order_row import OrderRow
from ingest.services.worker_parts import Classes
from ingest.store.orders.order_store import OrderStore
from ingest.upstream.client import UpstreamClient


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


class GatedStore(OrderStore):
    """Stores nothing before its gate is open."""

    gate: asyncio.Event

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        await self.gate.wait()
        return await super().upsert(rows)


class CountingConsumer(Consumer):
    """Remembers how many entries each ack had."""

    acks: list[int]

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        self.acks.append(len(entries))
        return await super().ack(entries)


def with_class_attributes(kind: type[Any], **attributes: object) -> type[Any]:
    """The class with attributes of this test's own."""
    return type(kind.__name__, (kind,), attributes)


# -- what is held, and for how long ---------------------------------------------------------------------------


async def test_a_slot_is_taken_before_a_message_is_read(scene: Scene) -> None:
    backlog = 2_000
    gate = asyncio.Event()
    parts = Classes(store=with_class_attributes(GatedStore, gate=gate))
    await scene.enqueue(*ids(backlog))
    most = 10 + 25

    async with scene.worker(classes=parts, concurrency=10, batch_rows=25) as worker:
        samples: list[int] = []

        async def held() -> int:
            samples.append(await scene.pending_count())
            return samples[-1]

        async def full() -> bool:
            return await held() >= most and scene.api.stats().requests == most

        await eventually(full)
        for _ in range(100):
            await held()
        gate.set()

        async def finished() -> bool:
            await held()
            return await scene.is_finished()

        await eventually(finished, every=0)

    assert max(samples) == most
    assert worker.metric("ingest_orders_total", outcome="stored") == backlog


async def test_a_lone_order_waits_for_no_other(scene: Scene) -> None:
    async with scene.worker(concurrency=100, batch_rows=500) as worker:
        for order_id in ids(3):
            await scene.enqueue(order_id)
            await scene.finished(within=5)

        assert worker.metric("ingest_store_batch_rows_count") == 3
    assert_right(await scene.rows(), ids(3))


async def test_orders_that_come_while_a_batch_commits_share_the_next_one_and_no_batch_has_two_acks(
    scene: Scene,
) -> None:
    acks: list[int] = []
    await scene.enqueue(*ids(1_000))

    async with scene.worker(
        classes=Classes(consumer=with_class_attributes(CountingConsumer, acks=acks)), concurrency=200
    ) as worker:
        await scene.finished()
        statements = worker.metric("ingest_store_batch_rows_count")
        rows = worker.metric("ingest_store_batch_rows_sum")

    assert rows == 1_000
    assert statements < 1_000 / 3
    assert len(acks) <= statements
    assert sum(acks) == 1_000
    assert_right(await scene.rows(), ids(1_000))


async def test_a_slow_order_stays_with_its_worker_while_that_lives(scene: Scene) -> None:
    scene.api.behave(latency="3.5")
    await scene.enqueue(*ids(3))

    # With its slots full the first one looks for nothing to reclaim, not even its own.
    async with scene.worker("first", claim_idle=1, concurrency=3) as first:
        await eventually(lambda: scene_requests(scene, 3))
        async with scene.worker("second", claim_idle=1) as second:
            await scene.finished()

            assert second.metric("ingest_redeliveries_total", reason="idle") == 0
        assert first.metric("ingest_redeliveries_total", reason="idle") == 0
    assert scene.api.stats().by_id == dict.fromkeys(ids(3), 1)
    assert_right(await scene.rows(), ids(3))


async def test_rows_that_wait_for_postgresql_stay_with_their_worker_too(scene: Scene) -> None:
    gate = asyncio.Event()
    await scene.enqueue(*ids(3))

    parts = Classes(store=with_class_attributes(GatedStore, gate=gate))
    # Two rows fill the batch, the third order keeps the slot: nothing is read, or looked for, any more.
    async with scene.worker("first", parts, claim_idle=1, concurrency=1, batch_rows=2):
        await eventually(lambda: scene_requests(scene, 3))
        async with scene.worker("second", claim_idle=1) as second:
            # For longer than two leases.
            handed_out = asyncio.get_running_loop().time()

            async def renewed() -> bool:
                pending = await scene.pending()
                assert {entry.consumer for entry in pending} == {"first"}
                return asyncio.get_running_loop().time() - handed_out > 2.5

            await eventually(renewed)
            gate.set()
            await scene.finished()
            assert second.metric("ingest_redeliveries_total", reason="idle") == 0
    assert_right(await scene.rows(), ids(3))


async def scene_requests(scene: Scene, count: int) -> bool:
    return scene.api.stats().requests >= count


async def test_what_a_dead_worker_held_is_reclaimed_when_its_heartbeat_has_ended(scene: Scene) -> None:
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue(*ids(30))
    async with scene.worker("dead", claim_idle=3600, concurrency=30):
        await eventually(lambda: scene_requests(scene, 30))
    scene.api.behave(hang_rate=0.0)

    async with scene.worker("heir", claim_idle=3600, concurrency=7) as heir:
        await scene.finished(within=15)

        assert heir.metric("ingest_redeliveries_total", reason="dead_consumer") == 30
        assert heir.metric("ingest_orders_total", outcome="stored") == 30
    assert_right(await scene.rows(), ids(30))


async def test_what_a_predecessor_of_the_same_name_held_runs_again_at_once(scene: Scene) -> None:
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue(*ids(30))
    async with scene.worker("slot", claim_idle=3600, concurrency=30):
        await eventually(lambda: scene_requests(scene, 30))
    scene.api.behave(hang_rate=0.0)

    async with scene.worker("slot", claim_idle=3600, concurrency=7) as heir:
        await scene.finished()

        assert heir.metric("ingest_redeliveries_total", reason="restart") == 30
    assert_right(await scene.rows(), ids(30))


async def test_a_worker_that_lost_its_lease_lets_go_and_neither_stores_nor_acks(scene: Scene) -> None:
    scene.api.behave(latency="4")
    await scene.enqueue("X")

    async with scene.worker("slow", claim_idle=1.5) as slow, scene.consumer("thief") as thief:
        await eventually(lambda: scene_requests(scene, 1))
        stolen = await claim_idle(thief, 10, 0)
        assert [delivery.order_id for delivery in stolen] == ["X"]

        async def let_go() -> bool:
            return slow.metric("ingest_in_flight") == 0

        await eventually(let_go, within=3)
        assert [entry.consumer for entry in await scene.pending()] == ["thief"]
        assert await scene.stored() == 0
        assert sum(slow.metric("ingest_orders_total", outcome=outcome) for outcome in ("stored", "dead")) == 0


async def test_the_stop_releases_what_is_unfinished_uncounted_and_claimable_at_once(scene: Scene) -> None:
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue(*ids(20))

    async with scene.worker("leaver", claim_idle=3600, concurrency=12) as leaver:
        await eventually(lambda: scene_requests(scene, 12))
        await leaver.stop(hurry=True)

    left = await scene.pending()
    assert len(left) == 12
    assert {entry.deliveries for entry in left} == {0}
    scene.api.behave(hang_rate=0.0)
    async with scene.worker("heir", claim_idle=3600, max_deliveries=2) as heir:
        await scene.finished()
        assert heir.metric("ingest_redeliveries_total", reason="idle") == 12
    assert await scene.dead() == []
    assert_right(await scene.rows(), ids(20))


async def test_the_stop_lets_what_is_in_flight_finish_and_leaves_the_group(scene: Scene) -> None:
    scene.api.behave(latency="0.4")
    await scene.enqueue(*ids(50))

    async with scene.worker(concurrency=10) as worker:
        await eventually(lambda: scene_requests(scene, 10))
        await worker.stop()

    stored, state = await scene.stored(), await scene.state()
    assert stored == scene.api.stats().requests >= 10
    assert (state.pending, state.consumers, state.depth) == (0, 0, 50 - stored)


async def test_a_cancelled_call_of_the_queue_is_cancelled_at_whatever_moment(scene: Scene) -> None:
    calls: dict[str, tuple[Any, ...]] = {
        "read": (5, 0.05),
        "claim_own": (5, []),
        "sweep": (1.0,),
        "move_due": (5,),
        "renew": (refs(scene.keys, ["1-1"]),),
        "ack": (refs(scene.keys, ["1-1"]),),
        "release": (delivered(scene.keys, ["1-1"]),),
        "heartbeat": (1.0,),
        "claim_abandoned": (5,),
        "leave": (),
        "ensure_group": (),
    }
    for turns, (call, arguments) in itertools.product(range(1, 12), calls.items()):
        async with scene.consumer("w") as consumer:
            calling = asyncio.create_task(getattr(consumer, call)(*arguments))
            for _ in range(turns):
                await asyncio.sleep(0)
            was_asked = calling.cancel()
            await asyncio.wait([calling])
        assert calling.cancelled() == was_asked, f"{call}, after {turns} turns of the event loop"


async def test_a_cancelled_worker_drops_everything_at_whatever_moment(scene: Scene) -> None:
    await scene.enqueue(*ids(20))

    for turns in range(0, 120, 3):
        # Each of them may be handed all of it again: that many deliveries are no poison here.
        async with scene.worker("slot", max_deliveries=1_000) as worker:
            for _ in range(turns):
                await asyncio.sleep(0)
            await worker.die()

    async with scene.worker("slot", max_deliveries=1_000):
        await scene.finished()
    assert_right(await scene.rows(), ids(20))


async def test_a_worker_stops_at_whatever_moment_it_is_asked(scene: Scene) -> None:
    await scene.enqueue(*ids(40))

    for turns in range(0, 120, 8):
        async with scene.worker(f"worker-{turns}", concurrency=1) as worker:
            for _ in range(turns):
                await asyncio.sleep(0)
            await worker.stop()

    state = await scene.state()
    assert (state.pending, state.consumers) == (0, 0)
    assert await scene.stored() + (state.depth or 0) == 40


# -- what each fault gets -------------------------------------------------------------------------------------


async def test_a_transient_fault_goes_to_the_retry_set_and_ends_stored(scene: Scene) -> None:
    scene.api.behave(error_rate=0.5, fail_first=1)
    await scene.enqueue(*ids(10))

    async with scene.worker() as worker:
        await scene.finished()

        retried = worker.metric("ingest_orders_total", outcome="retried")
        assert worker.metric("ingest_orders_total", outcome="stored") == 10
    asked = scene.api.stats().by_id
    rows = await scene.rows()
    assert_right(rows, ids(10))
    assert 0 < retried < 10
    attempts = {order_id: row["attempts"] for order_id, row in rows.items()}
    assert sum(attempts.values()) == 10 + retried
    # One that has come may be asked for again, to see whether the external API works.
    assert all(attempts[order_id] <= times for order_id, times in asked.items())
    assert sum(asked.values()) - sum(attempts.values()) <= retried


@pytest.mark.parametrize("fault", ["reset_rate", "truncate_rate", "unavailable_rate", "hang_rate"])
async def test_every_kind_of_passing_fault_ends_stored(scene: Scene, fault: str) -> None:
    scene.api.behave(**{fault: 1.0}, fail_first=1)
    await scene.enqueue("X")

    async with scene.worker(upstream_timeout=0.3):
        await scene.finished()

    assert_right(await scene.rows(), ["X"])


async def test_when_its_attempts_are_exhausted_an_order_is_a_dead_letter_with_all_it_came_with(scene: Scene) -> None:
    scene.api.behave(error_rate=1.0)
    await scene.add(order_id="X", colour="red", enqueued_at="1700000000123")

    async with scene.worker(max_attempts=3) as worker:
        await scene.finished()

        assert worker.metric("ingest_orders_total", outcome="retried") == 2
        assert worker.metric("ingest_orders_total", outcome="dead") == 1
    (letter,) = await scene.dead()
    assert letter["reason"] == "attempts_exhausted"
    assert letter["attempts"] == "3"
    assert "500" in letter["error"]
    assert (letter["order_id"], letter["colour"], letter["worker"]) == ("X", "red", "w")
    assert letter["first_enqueued_at"] == "1700000000123"
    assert scene.api.stats().requests == 3
    assert await scene.stored() == 0


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (404, "not_found"),
        (410, "not_found"),
        (422, "rejected"),
        (b"{" + document("X"), "invalid_order"),
        (b'["no order"]', "invalid_order"),
        (document("X") + b" " * 2_000_000, "invalid_order"),
    ],
    ids=str,
)
async def test_an_order_at_fault_is_a_dead_letter_at_once_and_stops_no_other(
    scene: Scene, sent: int | bytes, reason: str
) -> None:
    if isinstance(sent, bytes):
        scene.api.put_order("X", sent)
    else:
        scene.api.behave(breaking_id="X", error_status=sent)
    async with scene.worker(upstream_body_limit=1_000_000):
        await scene.enqueue("known")
        await scene.finished()
        await scene.enqueue("X")
        await scene.add(order_id="pushed", document=document("pushed"))
        await scene.finished()

    (letter,) = await scene.dead()
    assert (letter["order_id"], letter["reason"], letter["attempts"]) == ("X", reason, "1")
    assert letter["error"]
    assert scene.api.stats().by_id["X"] == 2, "it is requested once more before"
    assert_right(await scene.rows(), ["known", "pushed"])


async def test_an_entry_whose_id_is_beyond_all_dates_is_stored_and_so_are_those_behind_it(scene: Scene) -> None:
    # Each entry that is added after it has the same time in its ID.
    await scene.redis.xadd(scene.keys.stream, {"order_id": "X"}, id="99999999999999999-0")
    await scene.enqueue("Y")
    await scene.add(order_id="Z", document=document("Z"))

    async with scene.worker():
        await scene.finished()

    assert await scene.dead() == []
    assert sorted(await scene.rows()) == ["X", "Y", "Z"]


async def test_an_entry_without_a_valid_order_id_is_an_invalid_message(scene: Scene) -> None:
    wrong: list[dict[str, str | bytes]] = [
        {"id": "X"},
        {"order_id": ""},
        {"order_id": "../etc"},
        {"order_id": "x" * 65},
        {"order_id": b"\xff\xfe"},
    ]
    for fields in wrong:
        await scene.add(**fields, colour="red")
    await scene.enqueue("X")

    async with scene.worker():
        await scene.finished()

    letters = [letter for _, letter in await scene.redis.xrange(scene.keys.dead)]
    assert [(letter[b"reason"], letter[b"colour"]) for letter in letters] == [(b"invalid_message", b"red")] * 5
    assert {letter.get(b"order_id") for letter in letters} == {None, b"", b"../etc", b"x" * 65, b"\xff\xfe"}, (
        "as they came"
    )
    assert scene.api.stats().by_id == {"X": 1}
    assert_right(await scene.rows(), ["X"])


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_that_is_no_fault_of_the_order_uses_up_no_attempt(scene: Scene, status: int) -> None:
    if status == 503:
        scene.api.behave(unavailable_rate=1.0, retry_after=1)
    else:
        scene.api.behave(error_rate=1.0, error_status=status)
    await scene.enqueue(*ids(5))

    async with scene.worker(max_attempts=1) as worker:

        async def told_to_wait() -> bool:
            return worker.metric("ingest_orders_total", outcome="retried") == 5

        await eventually(told_to_wait)
        scene.api.behave(unavailable_rate=0.0, error_rate=0.0)
        # What was told to wait for longer than a test may take is due now.
        await scene.redis.zadd(scene.keys.retry, dict.fromkeys(await scene.redis.zrange(scene.keys.retry, 0, -1), 0))
        await scene.finished()

    rows = await scene.rows()
    assert_right(rows, ids(5))
    assert {row["attempts"] for row in rows.values()} == {1}
    assert await scene.dead() == []


async def test_a_message_that_was_delivered_too_often_is_taken_for_poison_and_not_tried_again(scene: Scene) -> None:
    await scene.enqueue("poison", "unlucky")
    async with scene.consumer("dead") as dead:
        poison, unlucky = await dead.read(10, 1.0)
    for delivery, deliveries in ((poison, 5), (unlucky, 4)):
        await scene.redis.xclaim(
            scene.keys.stream, GROUP, "dead", 0, [delivery.entry.id], idle=6_000, retrycount=deliveries, justid=True
        )

    async with scene.worker(claim_idle=6, max_deliveries=5):
        await scene.finished()

    (letter,) = await scene.dead()
    assert (letter["order_id"], letter["reason"]) == ("poison", "max_deliveries")
    assert scene.api.stats().by_id == {"unlucky": 1}
    assert_right(await scene.rows(), ["unlucky"])


async def test_a_bug_met_by_one_order_stops_no_other_and_keeps_its_entry(scene: Scene) -> None:
    class Buggy(UpstreamClient):
        async def fetch(self, request: FetchRequest) -> Fetched | Failed:
            if request.order_id == "order-3":
                raise ZeroDivisionError
            return await super().fetch(request)

    await scene.enqueue(*ids(40))

    async with scene.worker(classes=Classes(upstream=Buggy), concurrency=5, claim_idle=1, max_deliveries=2) as worker:
        await scene.stored_at_least(39)
        await scene.finished()

        async def has_heard() -> bool:
            return worker.metric("ingest_in_flight") == 0

        await eventually(has_heard)  # Redis has moved the entry before the worker has its reply
    (letter,) = await scene.dead()
    assert (letter["order_id"], letter["reason"]) == ("order-3", "max_deliveries")
    assert_right(await scene.rows(), [order_id for order_id in ids(40) if order_id != "order-3"])


async def test_a_bug_met_by_an_order_of_a_lost_reply_stops_no_other_either(scene: Scene) -> None:
    class Losing(Consumer):
        has_lost = False

        async def read(self, count: int, block: float, *, claims: bool = True) -> list[Delivery]:
            taken = await super().read(count, block, claims=claims)
            if taken and not self.has_lost:
                self.has_lost = True
                raise QueueUnavailable("the reply was lost")
            return taken

    requested: list[str] = []

    class Buggy(UpstreamClient):
        async def fetch(self, request: FetchRequest) -> Fetched | Failed:
            requested.append(request.order_id)
            if request.order_id == "order-0":
                raise ZeroDivisionError
            return await super().fetch(request)

    await scene.enqueue(*ids(20))

    classes = Classes(consumer=Losing, upstream=Buggy)
    async with scene.worker(classes=classes, concurrency=1, claim_idle=1, max_deliveries=2):
        await scene.stored_at_least(19)
        await scene.finished()

    (letter,) = await scene.dead()
    assert (letter["order_id"], letter["reason"]) == ("order-0", "max_deliveries")
    assert requested.count("order-0") == 2


async def test_an_ack_that_is_sent_again_after_a_failover_leaves_another_entry_with_the_same_id_pending(
    scene: Scene,
) -> None:
    acked: list[EntryRef] = []

    class Failing(Consumer):
        """Its first ack meets a failover to a server that is behind: in its data, and in its clock."""

        has_failed = False

        async def ack(self, entries: Sequence[EntryRef]) -> int:
            if not self.has_failed:
                self.has_failed = True
                await scene.redis.delete(scene.keys.stream)
                scene.api.behave(latency="30")
                await scene.redis.xadd(scene.keys.stream, {"order_id": "after"}, id="5-1")
                await eventually(is_requested)
                await scene.add(order_id="last", document=document("last"))
                raise QueueUnavailable("the connection was lost before the call")
            count = await super().ack(entries)
            acked.extend(entries)
            return count

    async def is_requested() -> bool:
        return "after" in scene.api.stats().by_id

    async def is_last_acked() -> bool:
        return bool({entry.id for entry in acked} - {"5-1"})

    await scene.redis.xadd(scene.keys.stream, {"order_id": "before"}, id="5-1")

    async with scene.worker(classes=Classes(consumer=Failing)):
        await eventually(is_last_acked)

        assert [entry_id for entry_id, _ in await scene.redis.xrange(scene.keys.stream)] == [b"5-1"]


# -- what is stored -------------------------------------------------------------------------------------------


async def test_a_pushed_document_is_stored_without_a_fetch(scene: Scene) -> None:
    await scene.add(order_id="X", document=document("X", price="0.10"))

    async with scene.worker():
        await scene.finished()

    rows = await scene.rows()
    assert_right(rows, ["X"])
    assert rows["X"]["total"] == Decimal("0.30")
    assert scene.api.stats().requests == 0


async def test_a_pushed_document_of_another_order_is_an_invalid_order(scene: Scene) -> None:
    await scene.add(order_id="X", document=document("Y"))

    async with scene.worker():
        await scene.finished()

    assert [letter["reason"] for letter in await scene.dead()] == ["invalid_order"]
    assert await scene.stored() == 0


async def test_an_order_announced_twice_is_one_row_and_the_second_time_changes_nothing(scene: Scene) -> None:
    async with scene.worker() as worker:
        await scene.enqueue("X")
        await scene.finished()
        before = await scene.rows()
        await scene.enqueue("X", "X", "Y", "X")
        await scene.finished()

        assert worker.metric("ingest_orders_total", outcome="stored") == 2
        assert worker.metric("ingest_orders_total", outcome="unchanged") == 3
    rows = await scene.rows()
    assert_right(rows, ["X", "Y"])
    assert unguarded({"X": rows["X"]}) == unguarded(before)


OLD = document("X", status="placed", updated_at="2026-01-01T00:00:00Z")
NEW = document("X", status="shipped", updated_at="2026-01-02T00:00:00Z")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", [OLD, NEW])
async def test_an_older_version_never_replaces_a_newer_one(scene: Scene, first: bytes, together: bool) -> None:  # noqa: FBT001
    second = NEW if first is OLD else OLD
    await scene.add(order_id="X", document=first)
    if together:
        await scene.add(order_id="X", document=second)

    async with scene.worker():
        await scene.finished()
        if not together:
            await scene.add(order_id="X", document=second)
            await scene.finished()

    rows = await scene.rows()
    assert_right(rows, ["X"])
    assert rows["X"]["status"] == "shipped"


async def test_an_erased_order_is_not_stored_again(scene: Scene) -> None:
    await scene.sql("INSERT INTO erased_orders (order_id) VALUES ('X')")
    await scene.enqueue("X", "Y")

    async with scene.worker() as worker:
        await scene.finished()

        assert worker.metric("ingest_orders_total", outcome="erased") == 1
    assert_right(await scene.rows(), ["Y"])
