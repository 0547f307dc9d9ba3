"""The history of deliveries is gathered and written together, and no order waits for it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from fakes.virtual_time import now, virtual_time
from structlog.testing import capture_logs

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.errors import RowsRefused, StoreUnavailable
from ingest.domain.orders.order_history import HistoryEvent, RecordedEvent
from ingest.flow.settle.recorder import Recorder
from ingest.store.connections.translation import StoreDenied


@dataclass
class KeptHistory:
    """Keeps the events of each call, and fails as configured."""

    failures: list[Exception] = field(default_factory=list)
    written: list[list[RecordedEvent]] = field(default_factory=list)
    deletions: list[float] = field(default_factory=list)
    denial: StoreDenied | None = None

    async def add(self, events: Sequence[RecordedEvent]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.written.append(list(events))

    async def delete_old(self, keep: float) -> bool:
        self.deletions.append(keep)
        if self.denial is not None:
            raise self.denial
        return len(self.deletions) > 1


def delivery(order_id: str | None, **fields: bytes) -> Delivery:
    given = {name.encode(): value for name, value in fields.items()}
    return Delivery(EntryRef("stream", "5000-0"), order_id, 5.0, 2, 1, None, given)


def recorder(history: KeptHistory, *, leads: bool = False) -> Recorder:
    return Recorder(history, "worker-ä", 60.0, lambda: leads, clock=now)


async def run_for(part: Recorder, seconds: float) -> None:
    running = asyncio.create_task(part.run())
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.wait([running])


def test_a_note_names_who_enqueued_and_replayed_the_order_in_ascii() -> None:
    note = recorder(KeptHistory()).note(delivery("A", origin="é\0".encode(), replayed_at=b"1500"), 0.5)

    assert (note.order_id, note.attempt, note.enqueued_at, note.took) == ("A", 2, 5.0, 0.5)
    assert (note.origin, note.replayed_at, note.worker) == (
        "\\xc3\\xa9\\x00",
        1.5,
        "worker-?".replace("?", "\\xc3\\xa4"),
    )
    assert recorder(KeptHistory()).note(delivery("A", replayed_at=b"soon"), None).replayed_at is None


@virtual_time
async def test_events_are_written_together_with_their_age() -> None:
    history = KeptHistory()
    part = recorder(history)
    part.add(delivery("A"), HistoryEvent.RETRIED, 0.1, after=3.0, reason="timeout", error="no response")
    part.add(delivery(None), HistoryEvent.DEAD_LETTERED, None, reason="invalid_message", error="no ID")
    part.add(delivery("B"), HistoryEvent.SKIPPED, None)

    await run_for(part, 2.5)

    [[first, second]] = history.written
    assert (first.note.order_id, first.event, first.after, first.error) == (
        "A",
        HistoryEvent.RETRIED,
        3.0,
        "no response",
    )
    assert (second.note.order_id, second.event) == ("B", HistoryEvent.SKIPPED)
    assert first.age >= 0
    assert part.since(now()) == 0


@virtual_time
async def test_events_are_kept_while_the_database_is_unavailable_and_dropped_if_it_refuses_them() -> None:
    history = KeptHistory([RowsRefused("a trigger refuses it"), StoreUnavailable("restarting")])
    part = recorder(history)
    part.add(delivery("A"), HistoryEvent.SKIPPED, None)

    await run_for(part, 30.0)
    part.add(delivery("B"), HistoryEvent.SKIPPED, None)
    await run_for(part, 0.0)

    assert history.failures == []
    assert [[event.note.order_id for event in events] for events in history.written] in ([["B"]], [])


@virtual_time
async def test_what_does_not_fit_in_memory_is_counted_and_old_events_are_deleted_by_the_leader() -> None:
    history = KeptHistory()
    part = recorder(history, leads=True)
    for _ in range(10_003):
        part.add(delivery("A"), HistoryEvent.SKIPPED, None)

    await run_for(part, 130.0)

    assert sum(map(len, history.written)) == 10_000
    assert max(map(len, history.written)) == 500
    assert history.deletions[:2] == [60.0, 60.0]
    part.close()


@virtual_time
async def test_a_denied_deletion_is_logged_once_and_events_are_still_written() -> None:
    history = KeptHistory(denial=StoreDenied("permission denied for table order_history"))
    part = recorder(history, leads=True)

    with capture_logs() as logs:
        running = asyncio.create_task(part.run())
        await asyncio.sleep(600)
        part.add(delivery("A"), HistoryEvent.RETRIED, 0.1)
        await asyncio.sleep(5)
        running.cancel()
        await asyncio.wait([running])

    assert len(history.deletions) == 10, "each round tries again"
    assert len(history.written) == 1
    assert [(log["event"], log["log_level"], log["error"]) for log in logs] == [
        ("history_not_deleted", "error", "permission denied for table order_history")
    ]
