"""`remap` maps stored documents again. Newer and erased orders stay."""

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from fakes.workers import metrics
from integration.scene import document
from msgspec.structs import replace
from support import connected

from ingest.domain.orders.order import Order, decode_order
from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.source_name import UNNAMED
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.mapping.transforms.transform import InLoop, Transform
from ingest.operations.backends import Backends
from ingest.operations.rebuilding.remap import remap
from ingest.operations.rebuilding.remap_report import RemapReport
from ingest.operations.rebuilding.remapping import remap_orders
from ingest.store.orders.documents import Documents, DocumentSelection
from ingest.store.orders.order_store import OrderStore

AT = datetime(2026, 1, 2, tzinfo=UTC)
Function = Callable[[Order, bytes], Any]


async def store(dsn: str, *order_ids: str, at: datetime = AT, kept: bool = True, status: str = "placed") -> None:
    bodies = {order_id: document(order_id, status=status) for order_id in order_ids}
    async with OrderStore.open(dsn) as orders:
        await orders.upsert(
            [
                OrderRow.of(decode_order(body, name), at, 2, 7.0, body.decode() if kept else None)
                for name, body in bodies.items()
            ]
        )


async def store_parts(dsn: str, function: Function, *order_ids: str) -> None:
    """Store the orders that the function makes of each document."""
    async with OrderStore.open(dsn) as orders:
        for order_id in order_ids:
            body = document(order_id)
            parts = function(decode_order(body, order_id), body)
            await orders.upsert([OrderRow.of(part, AT, 1, 0.0, body.decode()) for part in parts])


async def run(
    dsn: str,
    function: Function,
    *,
    after: str | None = None,
    dry_run: bool = False,
    ids: tuple[str, ...] = (),
    **selected: Any,
) -> RemapReport:
    transform = Transform(OrderDecoder(decode_order), InLoop(function, 1.0), metrics().transform)
    report = RemapReport(last=after)
    selection = DocumentSelection(OrderFilter(ids=ids), **selected)
    await remap(dsn, UNNAMED, transform, selection, report, dry_run=dry_run)
    return report


async def rows(dsn: str) -> dict[str, dict[str, Any]]:
    async with connected(dsn) as sql:
        return {row["order_id"]: dict(row) for row in await sql.fetch("SELECT * FROM orders")}


def better(order: Order, _: bytes) -> Order:
    return replace(order, status=f"better {order.status}", attributes={"seen": True})


async def test_a_row_is_made_again_and_keeps_what_its_document_does_not_tell(dsn: str) -> None:
    await store(dsn, "a")
    before = (await rows(dsn))["a"]

    report = await run(dsn, better)

    after = (await rows(dsn))["a"]
    assert (report.examined, report.changed, report.last) == (1, 1, "a")
    assert (after["status"], after["attributes"]) == ("better placed", '{"seen": true}')
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"status", "attributes", "ingested_at"}


async def test_everything_that_the_document_tells_is_made_again(dsn: str) -> None:
    await store(dsn, "a")
    updated = AT + timedelta(days=1)

    def other(order: Order, _: bytes) -> Order:
        return replace(order, updated_at=updated, country=None, lines=(order.lines[0],) * 2)

    await run(dsn, other)

    after = (await rows(dsn))["a"]
    assert (after["updated_at"], after["version"], after["fetched_at"]) == (updated, updated, AT)
    assert (after["country"], after["line_count"], str(after["total"])) == (None, 2, "15.00")


async def test_done_again_it_changes_nothing(dsn: str) -> None:
    await store(dsn, "a", "b")
    await run(dsn, better)
    before = await rows(dsn)

    report = await run(dsn, better)

    assert (report.unchanged, report.changed) == (2, 0)
    assert await rows(dsn) == before


async def test_a_dry_run_counts_and_changes_nothing(dsn: str) -> None:
    await store(dsn, "a", "b")
    before = await rows(dsn)

    report = await run(dsn, lambda order, _: [better(order, b""), replace(order, id=f"{order.id}-2")], dry_run=True)

    assert (report.examined, report.changed, report.inserted) == (2, 2, 2)
    assert await rows(dsn) == before


async def test_a_dry_run_counts_a_new_part_once_whatever_pages_the_others_are_on(dsn: str) -> None:
    def parts(order: Order, *names: str) -> list[Order]:
        return [replace(order, id=f"{name}-{order.id}") for name in names]

    order_ids = [f"order-{number:03}" for number in range(250)]
    await store_parts(dsn, lambda order, _: parts(order, "first", "last"), *order_ids)

    dry = await run(dsn, lambda order, _: parts(order, "first", "last", "new"), dry_run=True)

    assert (dry.examined, dry.unchanged, dry.inserted) == (500, 500, 250)


async def test_a_row_that_is_stored_again_meanwhile_is_newer_and_stays(dsn: str) -> None:
    await store(dsn, "a", "b")
    stored: list[str] = []

    async def meanwhile(order: Order, _: bytes) -> Order:
        if order.id == "a":
            await store(dsn, "a", at=AT + timedelta(seconds=1), status="newer")
            stored.append("a")
        return better(order, b"")

    report = await run(dsn, meanwhile)

    assert (stored, report.changed, report.newer) == (["a"], 1, 1)
    assert {order_id: row["status"] for order_id, row in (await rows(dsn)).items()} == {
        "a": "newer",
        "b": "better placed",
    }


async def test_an_order_that_was_erased_stays_erased(dsn: str) -> None:
    await store(dsn, "a", "b")

    async def meanwhile(order: Order, _: bytes) -> list[Order]:
        async with connected(dsn) as sql:
            await sql.execute("INSERT INTO erased_orders VALUES ('a'), ('b-2') ON CONFLICT DO NOTHING")
            await sql.execute("DELETE FROM orders WHERE order_id = 'a'")
        return [order, replace(order, id=f"{order.id}-2")]

    await run(dsn, meanwhile)

    assert set(await rows(dsn)) == {"b"}


async def test_rows_without_a_document_are_left_out(dsn: str) -> None:
    await store(dsn, "a", kept=False)

    assert (await run(dsn, better)).examined == 0


async def test_a_document_that_cannot_be_used_is_told_and_its_row_stays(dsn: str) -> None:
    await store(dsn, "a", "b", "c", "d")
    async with connected(dsn) as sql:
        await sql.execute("UPDATE orders SET document = '[]' WHERE order_id = 'b'")
        await sql.execute("ALTER TABLE orders ADD CHECK (status <> 'better d')")

    def fails(order: Order, _: bytes) -> Order | None:
        if order.id == "a":
            raise KeyError("Jane Doe")
        return replace(order, status=f"better {order.id}")

    report = await run(dsn, fails)

    assert (report.examined, report.changed, report.failed, report.last) == (4, 1, 3, "d")
    told = {failure.order_id: (failure.reason, failure.error) for failure in report.failures}
    assert told["a"][0] == "transform_failed"
    assert "Jane" not in told["a"][1]
    assert told["b"] == ("invalid_order", "Expected `object`, got `array`")
    assert told["d"][0] == "unstorable"
    statuses = {order_id: row["status"] for order_id, row in (await rows(dsn)).items()}
    assert statuses == {"a": "placed", "b": "placed", "c": "better c", "d": "placed"}


async def test_an_order_that_is_skipped_today_stays(dsn: str) -> None:
    await store(dsn, "a")

    report = await run(dsn, lambda *_: None)

    assert (report.skipped, set(await rows(dsn))) == (1, {"a"})


async def test_the_parts_of_an_order_are_made_again_each(dsn: str) -> None:
    def split(order: Order, _: bytes) -> list[Order]:
        return [replace(order, id=f"{order.id}-{number}", status="part") for number in (1, 2)]

    await store_parts(dsn, split, "a")

    report = await run(dsn, lambda order, body: [better(each, b"") for each in split(order, body)])

    assert (report.examined, report.changed, report.inserted) == (2, 2, 0)
    assert {row["status"] for row in (await rows(dsn)).values()} == {"better part"}


async def test_many_parts_of_one_document_are_made_again_in_bounded_memory(dsn: str) -> None:
    body = document("a").removesuffix(b"}") + b',"note":"' + b"x" * 20_000 + b'"}'
    async with OrderStore.open(dsn) as orders:
        await orders.upsert([OrderRow.of(decode_order(body, "a"), AT, 2, 7.0, body.decode())])

    tracemalloc.start()
    try:
        report = await run(dsn, lambda order, _: [order, *(replace(order, id=f"a-{n:03}") for n in range(199))])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (report.examined, report.inserted, report.unchanged, report.failed) == (200, 199, 200, 0)
    assert peak < 200_000_000


async def test_parts_of_an_order_that_their_document_does_not_name_stay(dsn: str) -> None:
    def split(order: Order, _: bytes) -> list[Order]:
        return [replace(order, id=f"{order.id}{part}", status="part") for part in ("", "-2")]

    # As with a mapping whose `id` is the requested ID, which is no longer known for the second row.
    mapping = OrderDecoder(lambda body, order_id: replace(decode_order(body, "a"), id=order_id))
    await store_parts(dsn, split, "a")
    before = await rows(dsn)

    report = RemapReport()
    transform = Transform(mapping, InLoop(split, 1.0), metrics().transform)
    await remap(dsn, UNNAMED, transform, DocumentSelection(), report, identify=lambda _: None)

    assert await rows(dsn) == before
    assert [(failure.order_id, failure.reason) for failure in report.failures] == [
        ("a", "transform_failed"),
        ("a-2", "transform_failed"),
    ]


async def test_what_is_selected_is_made_again(dsn: str) -> None:
    await store(dsn, "a", "b", "c")
    await store(dsn, "d", at=AT + timedelta(days=1))

    assert (await run(dsn, better, ids=("a", "c"), dry_run=True)).examined == 2
    assert (await run(dsn, better, since=AT + timedelta(hours=1), dry_run=True)).examined == 1
    assert (await run(dsn, better, until=AT + timedelta(hours=1), dry_run=True)).examined == 3
    assert (await run(dsn, better, after="b", dry_run=True)).examined == 2


async def test_pages_follow_each_other_and_large_documents_come_in_small_pages(dsn: str) -> None:
    await store(dsn, *(f"order-{number:04}" for number in range(450)))
    async with connected(dsn) as sql:
        # Texts that cannot be compressed.
        await sql.execute(
            "UPDATE orders SET document = document || jsonb_build_object('random', random)"
            " FROM (SELECT string_agg(md5(random()::text), '') AS random FROM generate_series(1, 40000)) AS texts"
            " WHERE order_id >= 'order-0440'"
        )

    report = await run(dsn, better)

    assert (report.examined, report.changed) == (450, 450)
    async with Documents.open(dsn, DocumentSelection()) as documents:
        assert [len(await documents.page(OrderPosition(after))) for after in ("", "order-0300", "order-0439")] == [
            200,
            140,
            1,
        ]


async def test_an_interrupted_run_goes_on_where_it_ended(dsn: str) -> None:
    await store(dsn, *(f"order-{number:04}" for number in range(250)))
    report = RemapReport()

    async def interrupted(order: Order, _: bytes) -> Order:
        if order.id == "order-0249":
            raise KeyboardInterrupt
        return better(order, b"")

    transform = Transform(OrderDecoder(decode_order), _Raising(interrupted), metrics().transform)
    with pytest.raises(_Stopped):
        await remap(dsn, UNNAMED, transform, DocumentSelection(), report)
    assert report.last == "order-0199"

    rest = await run(dsn, better, after=report.last)

    assert (report.changed, rest.changed) == (200, 50)


class _Stopped(Exception):
    """The run ends here."""


class _Raising(InLoop):
    """Ends the run where the function is interrupted."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, 1.0)

    async def run(self, order: Order, body: bytes) -> Any:
        try:
            return await super().run(order, body)
        except KeyboardInterrupt:
            raise _Stopped from None


async def test_a_row_that_a_trigger_keeps_as_it_is_or_keeps_out_is_told(dsn: str) -> None:
    def parts(order: Order, _: bytes) -> tuple[Order, ...]:
        return tuple(replace(order, id=f"{order.id}{part}", status="made") for part in ("", "-1"))

    await store(dsn, "bad", "good")
    async with connected(dsn) as sql:
        await sql.execute(
            "CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
            "CREATE TRIGGER suppresses BEFORE INSERT OR UPDATE ON orders FOR EACH ROW"
            " WHEN (new.order_id ~ '^bad') EXECUTE FUNCTION suppress()"
        )

    report = await run(dsn, parts)

    error = "a trigger kept the row from being stored"
    assert [(each.order_id, each.reason, each.error) for each in report.failures] == [
        ("bad", "unstorable", error),
        ("bad-1", "unstorable", error),
    ]
    assert (report.changed, report.inserted, report.failed) == (1, 1, 2)
    assert {name: row["status"] for name, row in (await rows(dsn)).items()} == {
        "bad": "placed", "good": "made", "good-1": "made",
    }  # fmt: skip


async def test_a_dry_run_shows_the_fields_that_would_change(dsn: str) -> None:
    await store(dsn, "a", "b", "c")

    def changed(order: Order, _: bytes) -> Order:
        cheaper = replace(order.lines[0], unit_price=Decimal("2.40"))
        return order if order.id == "c" else replace(order, lines=(cheaper,), attributes={"channel": order.id})

    report = await run(dsn, changed, dry_run=True)

    assert report.fields.by_frequency() == [("attributes.channel", 2), ("lines[].unit_price", 2)]
    [first, _] = report.fields.examples["lines[].unit_price"]
    assert (first.order_id, first.before, first.after) == ("a", "2.50", "2.40")


async def test_orders_that_were_stored_within_a_time_are_remapped_once_and_recorded(
    dsn: str, redis_url: str, queue_name: str
) -> None:
    order_ids = [f"order-{number:03}" for number in range(450)]
    await store(dsn, *order_ids)
    async with connected(dsn) as sql:
        await sql.execute("UPDATE orders SET ingested_at = now() - interval '2 hours' WHERE order_id < 'order-003'")
    backends = Backends(redis_url, dsn, queue_name, keeps_history=True)
    transform = Transform(OrderDecoder(decode_order), InLoop(better, 1.0), metrics().transform)
    report = RemapReport()
    # The rows that are changed move to the end of the list, which begins an hour ago and has no end.
    within = DocumentSelection(OrderFilter(stored_from=datetime.now(UTC) - timedelta(hours=1)))

    await remap_orders(backends, transform, within, report, "cli:me")

    assert (report.examined, report.changed) == (447, 447)
    assert {name for name, row in (await rows(dsn)).items() if row["attributes"] == "{}"} == set(order_ids[:3])
    async with connected(dsn) as sql:
        assert await sql.fetchval("SELECT count(*) FROM order_history WHERE event = 'remapped'") == 447
        audited = await sql.fetch("SELECT phase, actor, action, count FROM audit_log ORDER BY id")
    assert [tuple(row) for row in audited] == [
        ("begun", "cli:me", "orders.remap", None),
        ("done", "cli:me", "orders.remap", 447),
    ]
