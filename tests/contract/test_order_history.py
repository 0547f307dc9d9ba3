"""The history of an order is kept by a real PostgreSQL, for a limited time, and never of an erased order."""

from datetime import UTC, datetime, timedelta

import msgspec
from databases import erase
from support import connected

from ingest.domain.orders.order import Order
from ingest.domain.orders.order_history import DeliveryNote, HistoryEvent, RecordedEvent
from ingest.domain.orders.order_row import OrderRow
from ingest.store.connections.pool import Pool
from ingest.store.orders.history import HistoryStore
from ingest.store.orders.order_store import OrderStore

ENQUEUED_AT = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)


def event(order_id: str, kind: HistoryEvent, age: float, **given: object) -> RecordedEvent:
    replayed_at = given.pop("replayed_at", None)
    note = DeliveryNote(order_id, 3, ENQUEUED_AT.timestamp(), "webhook:shop", replayed_at, "worker-1", 0.25)  # type: ignore[arg-type]
    return RecordedEvent(note, kind, age, **given)  # type: ignore[arg-type]


async def test_a_retry_is_shown_with_its_reason_after_the_producer_that_enqueued_the_order(dsn: str) -> None:
    async with Pool.open(dsn, size=1) as pool:
        history = HistoryStore(pool, "shop")
        retried = event("a", HistoryEvent.RETRIED, 5.0, after=2.5, reason="http_status", error="HTTP 503")
        await history.add([retried, event("b", HistoryEvent.SKIPPED, 0.0)])

        shown = await history.page("a", None, 10)
        of_another_source = await HistoryStore(pool).page("a", None, 10)

    retry, enqueued = shown.entries
    assert (retry.event, retry.attempt, retry.took, retry.status) == (HistoryEvent.RETRIED, 3, 0.25, 503)
    assert (retry.reason, retry.error, retry.worker, retry.by) == ("http_status", "HTTP 503", "worker-1", None)
    assert retry.next_at is not None
    assert retry.next_at - retry.at == timedelta(seconds=2.5)
    assert msgspec.to_builtins(enqueued) == {"at": "2026-01-31T08:00:00Z", "event": "enqueued", "by": "webhook:shop"}
    assert (shown.before, of_another_source.entries) == (None, ())


async def test_pages_contain_each_event_once_and_a_replay_before_its_attempt(dsn: str) -> None:
    replayed_at = datetime.now(UTC) - timedelta(seconds=30)
    async with Pool.open(dsn, size=1) as pool:
        history = HistoryStore(pool)
        early = [event("a", HistoryEvent.RETRIED, 100.0 + age) for age in range(20)]
        late = [event("a", HistoryEvent.RETRIED, float(age), replayed_at=replayed_at.timestamp()) for age in range(20)]
        await history.add([*early, *late])

        pages = [page := await history.page("a", None, 7)]
        while page.before is not None:
            pages.append(page := await history.page("a", page.before, 7))

    events = [entry.event for page in pages for entry in page.entries]
    assert events.count(HistoryEvent.RETRIED) == 40
    assert events[20] is HistoryEvent.REPLAYED
    assert events[-1] is HistoryEvent.ENQUEUED


async def test_erasing_an_order_deletes_its_history_and_none_is_added_afterwards(dsn: str) -> None:
    async with Pool.open(dsn, size=1) as pool:
        history, of_other_shop = HistoryStore(pool), HistoryStore(pool, "other")
        for each in (history, of_other_shop):
            await each.add([event("a", HistoryEvent.RETRIED, 1.0), event("b", HistoryEvent.RETRIED, 1.0)])

        await erase(dsn, "a")
        for each in (history, of_other_shop):
            await each.add([event("a", HistoryEvent.RETRIED, 0.0)])
            await each.add_operation(["a", "b"], HistoryEvent.REFETCHED, "cli:me")

        erased, other = await history.page("a", None, 10), await history.page("b", None, 10)
        same_id = await of_other_shop.page("a", None, 10)

    assert [entry.event for entry in erased.entries] == [HistoryEvent.ERASED]
    assert (other.entries[0].event, other.entries[0].by) == (HistoryEvent.REFETCHED, "cli:me")
    assert len(other.entries) == 3
    assert [entry.event for entry in same_id.entries].count(HistoryEvent.RETRIED) == 2
    assert same_id.entries[0].event is HistoryEvent.REFETCHED


async def test_erasing_an_order_leaves_the_order_of_another_source_with_its_id(dsn: str) -> None:
    row = OrderRow.of(Order("a", "placed", "GBP", ENQUEUED_AT, ()), ENQUEUED_AT, attempts=1, enqueued_at=0.0)
    for source in ("", "other"):
        async with OrderStore.open(dsn, source) as store:
            await store.upsert([row])

    erased = await erase(dsn, "a")

    async with connected(dsn) as connection:
        left = await connection.fetch("SELECT source FROM orders")
    assert (erased, [source for (source,) in left]) == (1, ["other"])


async def test_old_events_of_all_sources_are_deleted(dsn: str) -> None:
    async with Pool.open(dsn, size=1) as pool, connected(dsn) as connection:
        for source in ("", "shop"):
            await HistoryStore(pool, source).add([event("a", HistoryEvent.RETRIED, age) for age in (0.0, 50.0, 200.0)])

        is_complete = await HistoryStore(pool).delete_old(100.0)

        assert is_complete
        assert await connection.fetchval("SELECT count(*) FROM order_history") == 4
