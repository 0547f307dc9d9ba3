"""Performs a story with real workers in virtual time, and returns each violation of a guarantee."""

import asyncio
import random as shared_random
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

from fakes.store import MemoryStore
from fakes.upstream import MemoryUpstream, document, response
from fakes.virtual_time import VirtualTimeLoop, now, until
from fakes.workers import RunningWorker, Workplace

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.entry_fields import EXPECTED_VERSION
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault, TransportFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order_row import OrderRow
from ingest.settings import Settings
from simulation.network import Network
from simulation.story import LAST, Event, Kind, Story

# The responses that an API may send for all orders while it fails as a whole.
RESPONSES: tuple[Callable[[], Fault | bytes], ...] = (
    lambda: TransientFault("connection refused", reached=False),
    lambda: TransientFault("HTTP 503"),
    lambda: TransientFault("HTTP 500"),
    lambda: CredentialFault("HTTP 401"),
    lambda: ThrottledFault("HTTP 429"),
    lambda: ThrottledFault("HTTP 429", 5.0),
    lambda: TransportFault("our client failed"),
    lambda: PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"),
    lambda: PermanentFault(DeadReason.REJECTED, "HTTP 400"),
    lambda: b"<html>maintenance</html>",
)
# The longest pause between two tries is five minutes.
_DRAINED_WITHIN = 3600.0
_STOPPED_WITHIN = 120.0
# Of orders that do not exist or have no document. An API that fails as a whole may send another of these responses.
_REASONS = {"not_found", "invalid_order", "rejected"}


class _Store(MemoryStore):
    """Records rows that an older version replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.went_back: list[str] = []

    def _store_one(self, row: OrderRow) -> Any:
        before = self.rows.get(row.order_id)
        effect = super()._store_one(row)
        if before is not None and version_of(self.rows[row.order_id]) < version_of(before):
            self.went_back.append(row.order_id)
        return effect


class _Shop(MemoryUpstream):
    """Serves each order in its version, and the former version for a while after a change.

    Attributes:
        given: the response to every request, or None for the usual responses.
    """

    def __init__(self, story: Story) -> None:
        super().__init__(now)
        self._story = story
        # The times of the versions of each order.
        self._changes: dict[str, list[float]] = {order: [now() - 1] for order in story.orders}
        self.given: Fault | bytes | None = None

    def change(self, order_id: str) -> None:
        """Give the order its next version."""
        self._changes[order_id].append(max(now(), self._changes[order_id][-1] + 0.001))

    def version(self, order_id: str) -> int:
        """The number of the current version."""
        return len(self._changes[order_id])

    def expected_version(self, order_id: str) -> bytes:
        """The time of the current version in a webhook, in microseconds."""
        return b"%d" % round(_time(self._changes[order_id][-1]).timestamp() * 1_000_000)

    async def _answer(self, request: FetchRequest) -> Fetched | Failed:
        at = now()
        given = self._given(str(request.order_id)) if self.given is None else self.given
        await asyncio.sleep(self._story.response_time)
        return response(request, given, _time(at), at)

    def _given(self, order_id: str) -> Fault | bytes:
        if order_id.startswith("missing"):
            return PermanentFault(DeadReason.NOT_FOUND, "HTTP 404")
        if order_id.startswith("broken"):
            return b"[]"
        changes = self._changes[order_id]
        shown = [changed_at for changed_at in changes[1:] if changed_at <= now() - self._story.lag]
        body = document(order_id, f"version {1 + len(shown)}")
        if self._story.shows_versions:
            body = b'%s,"updated_at":"%s"}' % (body[:-1], _time([changes[0], *shown][-1]).isoformat().encode())
        return body


def version_of(row: OrderRow) -> int:
    """The number of a stored version."""
    return int(row.status.removeprefix("version "))


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@dataclass
class _Process:
    name: str
    network: Network
    worker: RunningWorker
    resources: AsyncExitStack


class _World(Workplace):
    def __init__(self, story: Story) -> None:
        super().__init__()
        self._story = story
        self._random = Random(story.seed)
        self._networks: dict[str, Network] = {}
        self._settings = Settings.model_construct(concurrency=story.concurrency)
        self._processes: dict[int, _Process] = {}
        self._names = count(1)
        self._violations: list[str] = []
        self._announced: set[str] = set()
        self.store: _Store = _Store()
        self.upstream: _Shop = _Shop(story)

    def reach(self, name: str, port: Any) -> Any:
        return self._networks[name].reach(port)

    async def play(self) -> list[str]:
        """Perform the story, let everything work again, and return the violations."""
        story, began = self._story, now()
        for number in range(story.processes):
            await self._start(number)
        async with asyncio.TaskGroup() as events:
            for event in story.events:
                await asyncio.sleep(max(0.0, began + event.at - now()))
                events.create_task(self._happen(event))
        # Without an order that the API delivers, no failure is attributed to an order.
        self._announce(LAST)
        try:
            await until(self.group.is_empty, _DRAINED_WITHIN)
        except AssertionError:
            self._violations.append(f"still queued an hour after the last event: {self._left()}")
        for number in list(self._processes):
            await self._stop(self._processes.pop(number))
        return [*self._violations, *self._wrong_ends()]

    # -- events ----------------------------------------------------------------------------------------------

    async def _happen(self, event: Event) -> None:
        match event.kind:
            case Kind.ANNOUNCE:
                self._announce(event.order)
            case Kind.CHANGE:
                self.upstream.change(event.order)
                await asyncio.sleep(event.seconds)
                self._announce(event.order)
            case Kind.KILL | Kind.STOP:
                if process := self._processes.pop(event.process, None):
                    await (self._kill if event.kind is Kind.KILL else self._stop)(process)
                    await asyncio.sleep(event.seconds)
                    await self._start(event.process, process.name if event.is_same_name else None)
            case Kind.FREEZE:
                if process := self._processes.get(event.process):
                    process.network.frozen_until = now() + event.seconds
            case Kind.REDIS:
                self.group.set_available(is_available=False)
                await asyncio.sleep(event.seconds)
                self.group.set_available(is_available=True)
            case Kind.POSTGRES:
                self.store.is_available = False
                await asyncio.sleep(event.seconds)
                self.store.is_available = True
            case Kind.API:
                self.upstream.given = RESPONSES[event.response]()
                await asyncio.sleep(event.seconds)
                self.upstream.given = None

    def _announce(self, order_id: str) -> None:
        fields = {}
        if self._story.shows_versions and order_id.startswith("order"):
            fields[EXPECTED_VERSION.decode()] = self.upstream.expected_version(order_id)
        self.group.add(order_id, **fields)
        self._announced.add(order_id)

    # -- processes -------------------------------------------------------------------------------------------

    async def _start(self, number: int, name: str | None = None) -> None:
        name = name or f"process-{next(self._names)}"
        network = self._networks[name] = Network(self._random, self._story.latency, self._story.loss)
        async with AsyncExitStack() as stack:
            worker = await stack.enter_async_context(self.run_worker(name, self._settings))
            self._processes[number] = _Process(name, network, worker, stack.pop_all())

    async def _kill(self, process: _Process) -> None:
        process.network.is_cut = True
        await self._end(process)

    async def _stop(self, process: _Process) -> None:
        process.worker.shutdown.request("story")
        ended, _ = await asyncio.wait([process.worker.task], timeout=_STOPPED_WITHIN)
        if not ended:
            self._violations.append(f"{process.name} did not stop within {_STOPPED_WITHIN:.0f} s")
        await self._end(process)

    async def _end(self, process: _Process) -> None:
        try:
            await process.resources.aclose()
        except Exception as error:  # noqa: BLE001  any error of a process is a violation
            self._violations.append(f"{process.name} failed: {error!r}")

    # -- the end ---------------------------------------------------------------------------------------------

    def _wrong_ends(self) -> Iterator[str]:
        """A line for each order whose end contradicts a guarantee."""
        dead: dict[str, set[str]] = {}
        for letter in self.group.dead:
            dead.setdefault(str(letter.order_id), set()).add(letter.reason.value)
        for order_id in sorted(self._announced):
            row, reasons = self.store.rows.get(order_id), dead.pop(order_id, set())
            if not order_id.startswith("order"):
                if row is not None or not reasons or reasons - _REASONS:
                    yield f"{order_id} has the dead letters {sorted(reasons)}"
            elif row is None:
                yield f"{order_id} is lost, with the dead letters {sorted(reasons)}"
            elif reasons:
                yield f"{order_id} is stored, and was blamed: {sorted(reasons)}"
            elif version_of(row) != self.upstream.version(order_id):
                yield f"{order_id} is stored in {row.status}, not version {self.upstream.version(order_id)}"
        for order_id in sorted({*self.store.rows} - self._announced | {*dead}):
            yield f"{order_id} was never announced"
        for order_id in self.store.went_back:
            yield f"{order_id} went back to an older version"

    def _left(self) -> str:
        group = self.group
        return f"{len(group.undelivered)} new, {len(group.pending)} pending, {len(group.waiting)} to be retried"


def violations(story: Story) -> list[str]:
    """Perform a story, and return its violations. The same story takes the same course each time."""
    shared_random.seed(story.seed)

    async def run() -> list[str]:
        return await _World(story).play()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(run())
