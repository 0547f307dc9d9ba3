"""The gate: which deliveries may be handled now."""

import asyncio
from datetime import UTC, datetime

from fakes.virtual_time import now, some_turns, virtual_time
from fakes.workers import gauge
from unit.evidence import circuit

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.deliveries.outcome import Release
from ingest.domain.errors import TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.operating.controls import Controls, Pause
from ingest.flow.deliver.gate import UNAVAILABLE, Gate
from ingest.flow.followed_controls import SourceControls
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.flow.shutdown import Shutdown

FETCHED = Delivery(EntryRef("stream", "1-0"), "a", 1.0, 1, 1, None, {})
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
PUSHED = Delivery(EntryRef("stream", "2-0"), "b", 1.0, 1, 1, b"{}", {})


class Scene:
    """A gate with its dependencies."""

    def __init__(self) -> None:
        self.pauses = Pauses(clock=now, draw=lambda low, _: low)
        self.controls = SourceControls()
        self.circuit = circuit(window=1.0, clock=now)
        self.gate = Gate(self.circuit, Pace(10, gauge(), self.pauses, clock=now), self.controls)
        self.shutdown = Shutdown(1.0)

    async def open_circuit(self) -> None:
        fault = TransientFault("connection refused", reached=False)
        await self.circuit.classify(Exchange((FetchRequest("other"),), now()), fault)

    async def admit(self, delivery: Delivery = FETCHED) -> Release | None:
        return await self.gate.admit(delivery, self.shutdown)


@virtual_time
async def test_while_the_circuit_is_open_every_delivery_is_released() -> None:
    scene = Scene()
    await scene.open_circuit()

    released = [await scene.admit(delivery) for delivery in (FETCHED, PUSHED)]

    assert [type(each) for each in released] == [Release, Release]
    assert scene.gate.is_closed


@virtual_time
async def test_a_request_without_a_delivery_waits_until_the_circuit_closes() -> None:
    scene, waited = Scene(), list[str]()
    await scene.open_circuit()
    waiting = asyncio.create_task(scene.gate.admit_undelivered(waited.append))
    await asyncio.sleep(60.0)
    is_waiting = not waiting.done()

    scene.circuit.record_success(FetchRequest("other"), now())
    await asyncio.sleep(1.0)

    assert is_waiting
    assert waiting.done()
    assert {*waited} == {UNAVAILABLE}


@virtual_time
async def test_a_delivery_waits_for_a_pause_and_a_pushed_document_does_not() -> None:
    scene, before = Scene(), now()
    scene.pauses.ask(3.0)

    pushed = await scene.admit(PUSHED)
    at_once = now()
    fetched = await scene.admit()

    assert (pushed, at_once, fetched) == (None, before, None)
    assert now() - before >= 3.0


@virtual_time
async def test_a_stop_or_an_open_circuit_ends_the_wait_for_a_pause() -> None:
    stopped, broken, before = Scene(), Scene(), now()
    stopped.pauses.ask(60.0)
    broken.pauses.ask(60.0)
    waiting = [asyncio.create_task(scene.admit()) for scene in (stopped, broken)]
    await some_turns()

    stopped.shutdown.request("test")
    await broken.open_circuit()
    released = await asyncio.gather(*waiting)

    assert [type(each) for each in released] == [Release, Release]
    assert now() - before < 2.0


def paused(by: str = "me") -> Controls:
    return Controls(pauses={"": Pause(since=SINCE, by=by)})


@virtual_time
async def test_while_the_source_is_paused_every_delivery_is_released_and_nothing_is_read() -> None:
    scene = Scene()
    scene.controls.apply(paused(), "web1-1f0c22ab-0", SINCE)

    released = [await scene.admit(delivery) for delivery in (FETCHED, PUSHED)]

    assert released == [Release("the source is paused"), Release("the source is paused")]
    assert scene.gate.delay() > 0
    assert not scene.gate.is_closed


@virtual_time
async def test_a_pause_of_the_source_ends_the_wait_for_a_pause_of_the_api() -> None:
    scene, before = Scene(), now()
    scene.pauses.ask(60.0)
    waiting = asyncio.create_task(scene.admit())
    await some_turns()

    scene.controls.apply(paused(), "web1-1f0c22ab-0", SINCE)

    assert await waiting == Release("the source is paused")
    assert now() - before < 2.0
