"""Enqueues orders of one source at a steady rate, some confirmed in memory, some by a replica, and new versions of a few orders."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from integration.scene import document

from ingest.domain.deliveries.accepted import Durability
from ingest.lab.upstream import SimulatedApi
from ingest.queue.produce.producer import Producer

DURABILITIES = (Durability.MEMORY, Durability.REPLICATED)
_EVERY = 0.05
_CHANGING = 10
_CHANGE_EVERY = 20
_PLACED = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass
class Announced:
    """The orders of one source.

    Attributes:
        calls: when the call with each confirmed order began, and when it was confirmed, by durability.
        versions: the last version of each changing order.
    """

    calls: dict[Durability, dict[str, tuple[float, float]]] = field(
        default_factory=lambda: {durability: {} for durability in DURABILITIES}
    )
    versions: Counter[str] = field(default_factory=Counter)


class Announcer:
    """Enqueues orders of one source, and continues with the next ones while Redis does not respond."""

    def __init__(self, api: SimulatedApi, fast: Producer, safe: Producer, rate: float) -> None:
        self.announced = Announced()
        self._api = api
        self._fast = fast
        self._safe = safe
        self._rate = rate
        self._numbers = count()

    async def run(self, stop: asyncio.Event) -> None:
        """Until stopped, and until everything is confirmed."""
        began, sent = time.monotonic(), 0
        async with asyncio.TaskGroup() as calls:
            while not stop.is_set():
                due = int((time.monotonic() - began) * self._rate) - sent
                sent += due
                numbers = [next(self._numbers) for _ in range(due)]
                for number in numbers:
                    if number % _CHANGE_EVERY == 0:
                        calls.create_task(self._change(number // _CHANGE_EVERY % _CHANGING))
                for producer, durability, parity in zip((self._fast, self._safe), DURABILITIES, (0, 1), strict=True):
                    order_ids = [f"order-{each}" for each in numbers if each % _CHANGE_EVERY and each % 2 == parity]
                    calls.create_task(self._enqueue(producer, durability, order_ids))
                await asyncio.sleep(_EVERY)

    async def _enqueue(self, producer: Producer, durability: Durability, order_ids: Sequence[str]) -> None:
        if order_ids:
            began = time.time()
            await producer.enqueue(order_ids)
            self.announced.calls[durability] |= dict.fromkeys(order_ids, (began, time.time()))

    async def _change(self, number: int) -> None:
        versions = self.announced.versions
        order_id = f"changing-{number}"
        versions[order_id] += 1
        changed = _PLACED + timedelta(seconds=versions[order_id])
        body = document(order_id, status=f"version {versions[order_id]}", updated_at=changed.isoformat())
        self._api.put_order(order_id, body)
        await self._safe.enqueue(order_id)
