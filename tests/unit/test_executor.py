"""The executor: when the request of a delivery may begin, and what happens when it ends."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
from fakes.virtual_time import now, some_turns, virtual_time
from fakes.workers import gauge
from structlog.testing import capture_logs
from unit.evidence import circuit

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.deliveries.outcome import Outcome, Release
from ingest.flow.deliver.executor import Executor
from ingest.flow.deliver.gate import Gate
from ingest.flow.deliver.scheduler import Scheduler
from ingest.flow.followed_controls import SourceControls
from ingest.flow.held import Held
from ingest.flow.isolation import Isolation
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.flow.shares import Shares
from ingest.flow.shutdown import Shutdown


class Requests:
    """Stands for the handler and for settlement: notes when requests begin, and finishes their deliveries."""

    def __init__(self, held: Held) -> None:
        self.began: list[float] = []
        self.released: list[str] = []
        self.undecided = 0
        self._held = held

    async def handle(self, delivery: Delivery) -> Outcome:
        if delivery.order_id == "bug":
            raise ValueError("a bug")
        self.began.append(now())
        return Release("handled")

    async def move(self, delivery: Delivery, outcome: Release) -> None:
        self.undecided += len(self._held.undecided())
        self.released.append(outcome.cause)
        self._held.remove(delivery)

    @contextmanager
    def holding_no_rows(self) -> Iterator[None]:
        yield


class Source:
    """The executor of one source, with its stand-ins."""

    def __init__(self, isolation: Isolation | None = None) -> None:
        self.held, self.pauses = Held(clock=now), Pauses(clock=now, draw=lambda low, _: low)
        pace = Pace(1, gauge(), self.pauses, clock=now)
        healthy = circuit(clock=now)
        gate, self.requests = Gate(healthy, pace, SourceControls()), Requests(self.held)
        scheduler = Scheduler(self.held, pace, gate, gauge(), 1, Shares(1).add())
        stand_in, isolation = cast("Any", self.requests), isolation or Isolation()
        self.executor = Executor(
            stand_in, stand_in, self.held, scheduler, gate, healthy, isolation.of_source(self.held)
        )


def delivery(order_id: str = "a", number: int = 1) -> Delivery:
    return Delivery(EntryRef("stream", f"{number}-0"), order_id, 1.0, 1, 1, None, {})


@virtual_time
async def test_what_was_read_and_not_requested_waits_when_the_api_asks_for_a_pause() -> None:
    source = Source()
    started_at = now()

    source.executor.start([delivery()], Shutdown(1.0))
    source.pauses.pause_for(3.0)
    await some_turns()
    before = list(source.requests.began)
    await asyncio.sleep(4.0)

    assert before == []
    assert [at - started_at >= 3.0 for at in source.requests.began] == [True]
    assert len(source.held) == 0


@virtual_time
async def test_a_bug_in_processing_one_order_stops_no_other() -> None:
    source = Source()

    with capture_logs() as logs:
        source.executor.start([delivery("bug"), delivery("a", 2)], Shutdown(1.0))
        await asyncio.sleep(1.0)

    assert [log["order_id"] for log in logs if log["event"] == "delivery_failed"] == ["bug"]
    assert len(source.requests.began) == 1
    assert len(source.held) == 0


@virtual_time
async def test_a_delivery_is_decided_before_its_outcome_is_applied() -> None:
    source = Source()

    source.executor.start([delivery()], Shutdown(1.0))
    await asyncio.sleep(1.0)

    assert (source.requests.released, source.requests.undecided) == (["handled"], 0)


@virtual_time
async def test_an_isolated_entry_is_requested_when_no_other_is_held() -> None:
    source, other = Source(), delivery("b", 2)
    source.held.add(other, asyncio.create_task(asyncio.sleep(0)))

    source.executor.start_isolated(delivery())
    await asyncio.sleep(1.0)
    before = list(source.requests.began)
    source.held.remove(other)
    await asyncio.sleep(1.0)

    assert (before, len(source.requests.began)) == ([], 1)


@virtual_time
async def test_an_entry_is_released_while_another_source_isolates_one() -> None:
    isolation = Isolation()
    one, two, third = Source(isolation), Source(isolation), Source(isolation)
    redelivered = msgspec.structs.replace(delivery("held", 9), count=2)
    third.held.add(redelivered, asyncio.create_task(asyncio.sleep(0)))

    one.executor.start_isolated(delivery())
    await asyncio.sleep(1.0)
    two.executor.start_isolated(delivery())
    await asyncio.sleep(1.0)

    assert (one.requests.released, two.requests.released) == ([], ["another source isolates an entry"])
