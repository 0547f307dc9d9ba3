"""Reconciling accepted orders on real servers: each kind of finding is planted, and found."""

import asyncio
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from consumers import Consumer
from scene import GROUP, Scene, document, ids
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.orders.order import InvalidOrderId, decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.upstream import Behaviour
from ingest.operations.reconcile import Backends, ListedOrders, ReconciliationReport, reconcile
from ingest.store.orders.order_store import OrderStore

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "reconcile.md"


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    behaviour = Behaviour(any_id=True, error_rate=0.2, latency="0.01-0.03")
    async with Scene.open(redis_url, dsn, queue_name, behaviour) as scene:
        yield scene


async def reconciled(scene: Scene, accepted: Any, **options: Any) -> ReconciliationReport:
    options = {"complete": True} | options
    return await reconcile(accepted, Backends(scene.redis_url, scene.dsn, scene.queue, GROUP), **options)


async def store(scene: Scene, *order_ids: str, **changes: Any) -> None:
    """Store orders as a worker does, with the content of `document`."""
    rows = [OrderRow.of(decode_order(document(name, **changes), name), datetime.now(UTC), 1, 0.0) for name in order_ids]
    async with OrderStore.open(scene.dsn) as orders:
        await orders.upsert(rows)


async def take(consumer: Consumer, count: int = 1) -> list[Any]:
    return await eventually(lambda: consumer.read(count, 0.5))


async def dead_letter(scene: Scene, order_id: str, reason: DeadReason = DeadReason.NOT_FOUND) -> None:
    await scene.enqueue(order_id)
    async with scene.consumer("c0") as consumer:
        (delivery,) = await take(consumer)
        assert await consumer.dead_letter(delivery, reason, "as planned")


async def test_each_accepted_order_is_counted_where_it_is(scene: Scene) -> None:
    await store(scene, "stored-1", "stored-2", "both")
    await dead_letter(scene, "dead-1")
    await dead_letter(scene, "dead-2", DeadReason.INVALID_ORDER)
    await dead_letter(scene, "both")
    await scene.sql("INSERT INTO erased_orders (order_id) VALUES ('erased')")
    async with scene.consumer("c") as consumer:
        await scene.enqueue("retried", "pending")
        retried, _ = await take(consumer, 2)
        await consumer.reschedule(retried, 3600.0, 2)
        await scene.enqueue("waiting")

        report = await reconciled(
            scene,
            ["stored-1", "stored-2", "both", "dead-1", "dead-2", "erased", "retried", "pending", "waiting", "lost"],
        )

    assert report.accepted == 10
    assert (report.stored, report.dead, report.both, report.erased) == (2, 2, 1, 1)
    assert (report.queued, report.waiting, report.pending, report.retrying) == (3, 1, 1, 1)
    assert report.dead_letters == {"not_found": 2, "invalid_order": 1}
    assert (report.lost.count, report.lost.examples) == (1, ("lost",))
    assert (report.unexpected.count, report.wrong.count, report.unconfirmed) == (0, 0, 0)
    assert not report.is_clean
    assert not report.is_settled


async def test_a_report_without_findings_is_clean(scene: Scene) -> None:
    await store(scene, "a")
    await dead_letter(scene, "b")

    report = await reconciled(scene, ["a", "b", "a"], expected={"a": document("a"), "b": DeadReason.NOT_FOUND})

    assert report.is_clean
    assert report.is_settled
    assert (report.accepted, report.compared) == (2, 2)
    assert report.as_dict()["clean"] is True
    assert str(report).splitlines()[-1] == "clean"


async def test_an_empty_list_is_clean_before_the_first_entry(scene: Scene) -> None:
    report = await reconciled(scene, [])

    assert (report.accepted, report.is_clean, report.is_settled) == (0, True, True)


async def test_an_order_acked_without_a_commit_is_lost(scene: Scene) -> None:
    async with scene.consumer("c") as consumer:
        await scene.enqueue("a")
        (delivery,) = await take(consumer)
        await consumer.ack([delivery.entry])

        report = await reconciled(scene, ["a"])

    assert report.lost.examples == ("a",)


async def test_an_entry_that_left_the_pending_list_without_an_ack_counts_as_pending(scene: Scene) -> None:
    async with scene.consumer("c") as consumer:
        await scene.enqueue("a")
        await take(consumer)
        await scene.redis.xgroup_delconsumer(scene.keys.stream, GROUP, "c")

        report = await reconciled(scene, ["a"])

    assert (report.lost.count, report.pending, report.waiting) == (0, 1, 0)


async def test_a_retry_without_a_time_is_lost(scene: Scene) -> None:
    async with scene.consumer("c") as consumer:
        await scene.enqueue("a")
        (delivery,) = await take(consumer)
        await consumer.reschedule(delivery, 3600.0, 2)
        await scene.redis.delete(scene.keys.retry)

        report = await reconciled(scene, ["a"])

    assert report.lost.examples == ("a",)


async def test_an_entry_that_is_settled_and_kept_for_another_group_is_not_queued(scene: Scene) -> None:
    await scene.redis.xgroup_create(scene.keys.stream, "other", id="0", mkstream=True)
    async with scene.consumer("c") as consumer:
        await scene.enqueue("finished", "pending")
        finished, _ = await take(consumer, 2)
        await store(scene, "finished")
        await consumer.ack([finished.entry])

        report = await reconciled(scene, ["finished", "pending"])

    assert await scene.redis.xlen(scene.keys.stream) == 2
    assert (report.stored, report.queued, report.pending, report.waiting) == (1, 1, 1, 0)


async def test_without_a_group_everything_in_the_stream_is_waiting(scene: Scene) -> None:
    await scene.add(order_id="a")

    report = await reconciled(scene, ["a"])

    assert (report.waiting, report.queued) == (1, 1)


async def test_fields_that_are_not_text_do_not_hide_a_retry(scene: Scene) -> None:
    async with scene.consumer("c") as consumer:
        await scene.add(order_id="a", note=b"\xff" * 40, body=b"\xfe" * 300, more=b"\xfd" * 70_000)
        (delivery,) = await take(consumer)
        await consumer.reschedule(delivery, 3600.0, 2)

        report = await reconciled(scene, ["a"])

    assert (report.retrying, report.queued) == (1, 1)


async def test_rows_and_dead_letters_that_nobody_accepted_are_unexpected(scene: Scene) -> None:
    await store(scene, "mine", "row", "both")
    await dead_letter(scene, "letter")
    await dead_letter(scene, "both")

    report = await reconciled(scene, ["mine"])

    assert (report.unexpected.count, report.unexpected.examples) == (3, ("both", "row", "letter"))
    assert not report.is_clean


async def test_orders_missing_from_a_partial_list_are_not_unexpected(scene: Scene) -> None:
    await store(scene, "mine", "row")
    await dead_letter(scene, "letter")

    report = await reconciled(scene, ["mine"], complete=False)

    assert report.is_clean
    assert report.dead_letters == {"not_found": 1}


async def test_a_dead_letter_without_an_order_is_counted_by_its_reason(scene: Scene) -> None:
    await scene.add(order_id="no\norder")
    async with scene.consumer("c") as consumer:
        (delivery,) = await take(consumer)
        await consumer.dead_letter(delivery, DeadReason.INVALID_MESSAGE, "the entry has no valid order_id")

    report = await reconciled(scene, [])

    assert report.dead_letters == {"invalid_message": 1}
    assert report.is_clean


async def test_an_unconfirmed_order_may_be_anywhere_or_nowhere(scene: Scene) -> None:
    await store(scene, "stored")
    await dead_letter(scene, "dead")
    await scene.enqueue("waiting")

    report = await reconciled(scene, ["sure"], unconfirmed=["stored", "dead", "waiting", "nowhere", "sure"])

    assert (report.accepted, report.unconfirmed, report.arrived) == (1, 4, 3)
    assert (report.stored, report.dead, report.unexpected.count) == (0, 0, 0)
    assert report.lost.examples == ("sure",)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("status = 'shipped'", "status"),
        ("currency = 'GBP'", "currency"),
        ("customer_id = ''", "customer_id"),
        ("country = NULL", "country"),
        ("placed_at = placed_at + interval '1 microsecond'", "placed_at"),
        ("updated_at = placed_at", "updated_at"),
        ("line_count = 2", "line_count"),
        ("total = 7.51", "total"),
        ("lines = lines || lines", "lines[1]"),
        ("lines = '[]'", "lines[0]"),
        ("lines = jsonb_set(lines, '{0,sku}', '\"s\"')", "lines[0].sku"),
        ("lines = jsonb_set(lines, '{0,quantity}', '4')", "lines[0].quantity"),
        ("lines = jsonb_set(lines, '{0,description}', '\"\"')", "lines[0].description"),
        ("lines = jsonb_set(lines, '{0,unit_price}', '\"2.5\"')", "lines[0].unit_price"),
        ("status = 'shipped', lines = jsonb_set(lines, '{0,sku}', '\"s\"')", "status, lines[0].sku"),
    ],
)
async def test_a_row_that_differs_from_its_document_is_named_with_what_differs(
    scene: Scene, change: str, named: str
) -> None:
    await store(scene, "a", "b")
    await scene.sql(f"UPDATE orders SET {change} WHERE order_id = 'a'")

    report = await reconciled(scene, ["a", "b"], expected={"a": document("a"), "b": document("b")})

    assert (report.wrong.count, report.wrong.examples) == (1, (f"a ({named})",))
    assert report.compared == 2
    assert not report.is_clean


async def test_totals_are_compared_exactly(scene: Scene) -> None:
    price = "123456789012345678901234567890.000000000000000000000000001"
    await store(scene, "a", price=price)
    right = await reconciled(scene, ["a"], expected={"a": document("a", price=price)})
    await scene.sql("UPDATE orders SET total = total + 0.000000000000000000000000001")

    report = await reconciled(scene, ["a"], expected={"a": document("a", price=price)})

    assert right.is_clean
    assert report.wrong.examples == ("a (total)",)


def with_attributes(attributes: object) -> bytes:
    order = msgspec.json.decode(document("a"))
    return msgspec.json.encode(order if attributes is None else order | {"attributes": attributes})


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"gift": True}, {"gift": False}),
        ({"gift": True}, {"gift": 1}),
        ({"gift": True}, None),
        (None, {"gift": True}),
        ({"tags": [{"name": "a"}, "b"]}, {"tags": [{"name": "a"}, "c"]}),
        ({"tags": ["a"]}, {"tags": ["a", "b"]}),
    ],
)
async def test_attributes_that_differ_are_wrong(scene: Scene, stored: object, expected: object) -> None:
    row = OrderRow.of(decode_order(with_attributes(stored), "a"), datetime.now(UTC), 1, 0.0)
    async with OrderStore.open(scene.dsn) as orders:
        await orders.upsert([row])

    report = await reconciled(scene, ["a"], expected={"a": with_attributes(expected)})

    assert report.wrong.examples == ("a (attributes)",)


async def test_attributes_that_only_postgresql_writes_differently_are_right(scene: Scene) -> None:
    attributes = {"z": [1e16, 1.50, -0.0, None], "a": {"nested": {"b": 2, "a": "\u2603"}}, "big": 2**60, "no": False}
    row = OrderRow.of(decode_order(with_attributes(attributes), "a"), datetime.now(UTC), 1, 0.0)
    async with OrderStore.open(scene.dsn) as orders:
        await orders.upsert([row])

    report = await reconciled(scene, ["a"], expected={"a": with_attributes(attributes)})

    assert (report.compared, report.wrong.examples) == (1, ())


async def test_an_order_with_another_result_than_expected_is_wrong(scene: Scene) -> None:
    await store(scene, "stored", "both")
    await dead_letter(scene, "both")
    await dead_letter(scene, "dead", DeadReason.ATTEMPTS_EXHAUSTED)
    await dead_letter(scene, "otherwise", DeadReason.ATTEMPTS_EXHAUSTED)
    names = ["stored", "both", "dead", "otherwise"]
    expected = dict.fromkeys(names, DeadReason.NOT_FOUND) | {"dead": document("dead")}

    report = await reconciled(scene, names, expected=expected)

    assert report.wrong.examples == (
        "both (stored, should be dead: not_found)",
        "dead (dead: attempts_exhausted)",
        "otherwise (dead: attempts_exhausted, should be: not_found)",
        "stored (stored, should be dead: not_found)",
    )


async def test_expected_results_may_come_from_a_function(scene: Scene) -> None:
    names = ids(120)
    await store(scene, *names)

    async def expected(order_id: str) -> bytes | None:
        await asyncio.sleep(0)
        return (
            None if order_id == names[0] else document(order_id, status="shipped" if order_id == names[1] else "placed")
        )

    report = await reconciled(scene, names, expected=expected)

    assert report.compared == 119
    assert report.wrong.examples == (f"{names[1]} (status)",)


async def test_the_row_of_an_order_whose_next_version_is_queued_is_not_compared_yet(scene: Scene) -> None:
    await store(scene, "a")
    await scene.enqueue("a")

    report = await reconciled(scene, ["a"], expected={"a": document("a", status="shipped")})

    assert (report.compared, report.wrong.count, report.stored, report.waiting) == (0, 0, 1, 1)


async def test_the_first_of_many_findings_are_named_and_all_are_counted(scene: Scene) -> None:
    names = sorted(ids(2500))
    await store(scene, *names[:2000])

    report = await reconciled(scene, names[1500:])

    assert (report.lost.count, report.lost.examples) == (500, tuple(names[2000:2020]))
    assert (report.unexpected.count, report.unexpected.examples) == (1500, tuple(names[:20]))
    assert "and 480 more" in str(report)


async def test_every_lost_order_is_named_however_many_there_are(scene: Scene) -> None:
    names = sorted(ids(4500))
    await store(scene, *names[1000:2000])
    lost: list[str] = []
    looked: list[tuple[int, int]] = []

    report = await reconciled(
        scene,
        names,
        complete=False,
        on_lost=lost.append,
        on_progress=lambda done, total: looked.append((done, total)),
    )

    assert report.lost.count == 3500
    assert lost == names[:1000] + names[2000:]
    assert looked[0] == (0, 4500)
    assert max(looked) == (4500, 4500)


async def test_progress_is_told_while_the_queue_is_read(scene: Scene) -> None:
    await scene.enqueue(*ids(2500))
    looked: list[tuple[int, int]] = []

    await reconciled(scene, ids(1), complete=False, on_progress=lambda done, total: looked.append((done, total)))

    # Once at the beginning, and once for each page of a thousand entries.
    assert looked.count((0, 1)) >= 4


async def test_an_id_that_cannot_have_been_accepted_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidOrderId):
        await reconciled(scene, ["a\n"])


async def test_memory_does_not_grow_with_the_number_of_accepted_orders(scene: Scene) -> None:
    async def many(count: int) -> AsyncIterator[str]:
        for number in range(count):
            yield f"a-rather-long-order-id-that-takes-memory-{number:09}"

    async def peak_of(count: int) -> int:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        report = await reconciled(scene, many(count), complete=False)
        assert (report.accepted, report.lost.count) == (count, count)
        return tracemalloc.get_traced_memory()[1] - before

    await peak_of(1)  # allow for imports and caches
    tracemalloc.start()
    try:
        few, more = await peak_of(2_000), await peak_of(15_000)
    finally:
        tracemalloc.stop()

    assert more < few + 300_000


async def test_an_order_that_circulates_in_the_queue_is_never_reported_as_lost(scene: Scene) -> None:
    # A thousand others make a look take a while, during which these two are read and rescheduled many times.
    names = ["circulating-1", "circulating-2"]
    async with scene.consumer("c") as consumer:
        await scene.enqueue(*ids(3000))
        for _ in range(3):
            await take(consumer, 1000)
        await scene.enqueue(*names)
        rounds = 0

        async def circulate() -> None:
            nonlocal rounds
            while True:
                for delivery in await consumer.read(2, 0.1):
                    await consumer.reschedule(delivery, 0.0, 1)
                    rounds += 1
                await consumer.move_due(10)

        moving = asyncio.create_task(circulate())
        reports = [await reconciled(scene, names, complete=False) for _ in range(15)]
        moving.cancel()
        await asyncio.wait([moving])

    assert moving.cancelled()
    assert rounds > 15
    assert [report.lost.examples for report in reports if report.lost.count] == []


async def test_a_reconciliation_at_any_time_while_workers_run_finds_nothing_lost(scene: Scene) -> None:
    names = ids(200)
    reports = []
    async with scene.worker("w1", max_attempts=30) as one, scene.worker("w2", max_attempts=30) as two:
        await scene.enqueue(*names)
        while not reports or not reports[-1].is_settled:
            reports.append(await reconciled(scene, names))
        await one.stop()
        await two.stop()

    assert [report for report in reports if not report.is_clean] == []
    assert reports[-1].stored == len(names)
    assert len(reports) > 2


def test_the_example_in_the_documentation_runs(env: dict[str, str], tmp_path: Path) -> None:
    (example, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "accepted.txt").write_text("lost-1\nlost-2\n")

    done = subprocess.run(
        [sys.executable, "-c", example],
        env={**os.environ, **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.stderr == ""
    assert done.returncode == 1
    assert "LOST                       2  lost-1, lost-2" in done.stdout


def test_the_text_in_the_documentation_is_what_a_report_prints() -> None:
    (shown, *_) = re.findall(r"```text\n(accepted .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    assert shown.strip() == str(_shown())


def _shown() -> ReconciliationReport:
    return ReconciliationReport(
        accepted=10_000, stored=9_940, dead=40, both=0, erased=0, queued=20, lost=ListedOrders(), unconfirmed=0, arrived=0,
        waiting=0, pending=20, retrying=0, dead_letters={"not_found": 30, "invalid_order": 10}, compared=0,
        wrong=ListedOrders(), unexpected=ListedOrders(),
    )  # fmt: skip
