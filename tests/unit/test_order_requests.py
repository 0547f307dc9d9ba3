"""Requests for orders outside of deliveries, which wait whenever the requests of deliveries do."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

import pytest
from fakes.upstream import MemoryUpstream, document
from fakes.virtual_time import now, some_turns, virtual_time
from fakes.workers import gauge
from unit.evidence import GONE, REFUSED, circuit

from ingest.domain.errors import Fault, NotSent, PermanentFault, ThrottledFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.operating.controls import Controls, Pause
from ingest.domain.orders.order import InvalidDocument
from ingest.domain.orders.plain_order import StorableOrder, decode_plain
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.deliver.gate import UNAVAILABLE, Gate
from ingest.flow.deliver.order_requests import OrderRequests
from ingest.flow.followed_controls import SourceControls
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


class Scene:
    """Requests of one order with their dependencies, and the reasons for which they have waited."""

    def __init__(self) -> None:
        self.pauses = Pauses(clock=now, draw=lambda low, _: low)
        self.controls = SourceControls()
        self.circuit = circuit(window=1.0, clock=now)
        pace = Pace(10, gauge(), self.pauses, clock=now)
        self.upstream = MemoryUpstream(now)
        gate = Gate(self.circuit, pace, self.controls)
        self.requests = OrderRequests(self.upstream, OrderDecoder(decode_plain), gate, pace)
        self.reasons: list[str] = []

    def fetch(self) -> Awaitable[tuple[StorableOrder, ...]]:
        return asyncio.ensure_future(self.requests.fetch("a", self.reasons.append))

    def fail_once(self, fault: Fault) -> None:
        """Fail the first request only."""
        upstream, fetch = self.upstream, self.upstream.fetch

        async def failing(request: FetchRequest) -> Any:
            upstream.fault = fault if not upstream.requested else None
            return await fetch(request)

        upstream.fetch = failing  # type: ignore[method-assign]

    async def open_circuit(self) -> None:
        await self.circuit.classify(Exchange((FetchRequest("other"),), now()), REFUSED)


@virtual_time
async def test_no_request_is_sent_while_the_circuit_is_open() -> None:
    scene = Scene()
    await scene.open_circuit()

    fetching = scene.fetch()
    await asyncio.sleep(60)
    while_open = [*scene.upstream.requested]
    scene.circuit.record_success(FetchRequest("other"), now())
    orders = await fetching

    assert (while_open, scene.upstream.requested, len(orders)) == ([], ["a"], 1)
    assert set(scene.reasons) == {UNAVAILABLE}


@virtual_time
async def test_no_request_is_sent_while_the_api_asks_to_wait_or_an_operator_has_paused_the_source() -> None:
    scene, began_at = Scene(), now()
    scene.pauses.ask(30.0)

    fetching = scene.fetch()
    await asyncio.sleep(20)
    scene.controls.apply(Controls(pauses={"": Pause(since=SINCE, by="me")}), "w", SINCE)
    await asyncio.sleep(40)
    requested = [*scene.upstream.requested]
    scene.controls.apply(Controls(), "w", SINCE)
    await fetching

    assert requested == []
    assert now() - began_at >= 60
    assert {*scene.reasons} == {"the external API asks to wait", "the source is paused"}


@virtual_time
@pytest.mark.parametrize("fault", [ThrottledFault("HTTP 429", 20.0), NotSent("the source is paused")])
async def test_a_request_that_was_throttled_or_not_sent_is_repeated(fault: Fault) -> None:
    scene, began_at = Scene(), now()
    scene.fail_once(fault)

    orders = await scene.fetch()

    assert (scene.upstream.requested, len(orders)) == (["a", "a"], 1)
    assert now() - began_at >= (20.0 if isinstance(fault, ThrottledFault) else 0.5)


@virtual_time
async def test_a_failure_during_an_outage_is_not_the_fault_of_the_order() -> None:
    scene = Scene()
    scene.upstream.fault, scene.upstream.latency = REFUSED, 5.0

    fetching = scene.fetch()
    await some_turns()
    await scene.open_circuit()
    await asyncio.sleep(60)
    requested = [*scene.upstream.requested]
    scene.upstream.fault = None
    scene.circuit.record_success(FetchRequest("other"), now())
    orders = await fetching

    assert (requested, scene.upstream.requested, len(orders)) == (["a"], ["a", "a"], 1)


@virtual_time
async def test_another_failure_is_the_result_and_does_not_open_the_circuit() -> None:
    scene = Scene()
    for _ in range(50):
        scene.upstream.fault = GONE
        with pytest.raises(PermanentFault):
            await scene.fetch()
    scene.upstream.fault = None
    scene.upstream.documents["a"] = document("b")
    with pytest.raises(InvalidDocument):
        await scene.fetch()

    assert not scene.circuit.is_open
