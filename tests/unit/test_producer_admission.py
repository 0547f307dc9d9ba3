"""Producers of a paused source are rejected if the pause is set to reject, and rows of an outbox wait."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest

from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.controls import Controls, Pause
from ingest.operations.control.producer_admission import ProducerAdmission
from ingest.operations.relay.rows import RowEnqueuer
from ingest.queue.produce.producer_errors import BacklogFull, SourcePaused
from ingest.queue.produce.submission import Orders
from ingest.store.outbox.outbox import OutboxRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Record:
    """The controls, with a clock that a test sets."""

    def __init__(self, pause: Pause) -> None:
        self.controls = Controls(pauses={"shop": pause})
        self.is_available = True
        self.readings = 0
        self.passed = 0.0
        self.admission = ProducerAdmission(
            cast("Any", self), now=lambda: NOW + timedelta(seconds=self.passed), clock=lambda: self.passed
        )

    async def read(self, known: Controls) -> Controls:
        del known
        self.readings += 1
        await asyncio.sleep(0)
        if not self.is_available:
            raise QueueUnavailable("connection refused")
        return self.controls


class Enqueued:
    """Accepts every order."""

    def __init__(self) -> None:
        self.orders: list[Orders] = []

    async def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        del idempotency_key, express
        self.orders.append(orders)
        return 1


async def test_orders_are_rejected_until_the_pause_ends_with_the_time_to_try_again() -> None:
    record = Record(Pause(since=NOW, until=NOW + timedelta(seconds=30), by="me", reason="moving", rejects_orders=True))

    with pytest.raises(SourcePaused, match="accepts no orders: moving") as rejected:
        await record.admission.admit("shop")
    await record.admission.admit("other")
    record.passed = 30.0

    await record.admission.admit("shop")
    assert rejected.value.retry_after == 30.0


async def test_concurrent_orders_wait_for_the_reading_that_one_of_them_has_begun() -> None:
    record = Record(Pause(since=NOW, by="me", rejects_orders=True))

    admitted = await asyncio.gather(*(record.admission.admit("shop") for _ in range(3)), return_exceptions=True)

    assert [type(each) for each in admitted] == [SourcePaused] * 3
    assert record.readings == 1


async def test_a_pause_without_the_option_rejects_nothing() -> None:
    record = Record(Pause(since=NOW, by="me"))

    for _ in range(10):
        await record.admission.admit("shop")

    assert record.readings == 1


async def test_while_redis_is_unavailable_the_last_known_pause_applies() -> None:
    record = Record(Pause(since=NOW, by="me", rejects_orders=True))
    with pytest.raises(SourcePaused):
        await record.admission.admit("shop")

    record.is_available, record.passed = False, 10.0

    with pytest.raises(SourcePaused):
        await record.admission.admit("shop")


async def test_rows_of_an_outbox_wait_while_their_source_rejects_orders() -> None:
    record, enqueued = Record(Pause(since=NOW, by="me", rejects_orders=True)), Enqueued()
    rows = RowEnqueuer(enqueued, 0, partial(record.admission.admit, "shop"))
    row = OutboxRow(1, "key", "a", None, 0, express=False, source="shop")

    [(_, outcome)] = await rows.enqueue([row])

    assert isinstance(outcome, BacklogFull)
    assert enqueued.orders == []
