"""The executor: when the request of a delivery may begin."""

import asyncio
from typing import Any, cast

from fakes.virtual_time import now, some_turns, virtual_time
from fakes.workers import gauge
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
        self._held = held

    async def handle(self, _delivery: Delivery) -> Outcome:
        self.began.append(now())
        return Release("")

    async def move(self, delivery: Delivery, _outcome: Outcome) -> None:
        self._held.remove(delivery)


@virtual_time
async def test_what_was_read_and_not_requested_waits_when_the_api_asks_for_a_pause() -> None:
    held, pauses = Held(clock=now), Pauses(clock=now, draw=lambda low, _: low)
    pace = Pace(1, gauge(), pauses, clock=now)
    healthy = circuit(clock=now)
    gate, requests = Gate(healthy, pace, SourceControls()), Requests(held)
    scheduler = Scheduler(held, pace, gate, gauge(), 1, Shares(1).add())
    executor = Executor(
        cast("Any", requests),
        cast("Any", requests),
        held,
        scheduler,
        gate,
        healthy,
        Isolation().of_source(held),
    )
    started_at = now()

    executor.start([Delivery(EntryRef("stream", "1-0"), "a", 1.0, 1, 1, None, {})], Shutdown(1.0))
    pauses.pause_for(3.0)
    await some_turns()
    before = list(requests.began)
    await asyncio.sleep(4.0)

    assert before == []
    assert [at - started_at >= 3.0 for at in requests.began] == [True]
    assert len(held) == 0
