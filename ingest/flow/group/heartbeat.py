"""Says that this process is alive, and renews the leases of what it holds.

When a process's heartbeats end, other processes reclaim at once what it held. Each entry has a lease besides, for a process that
is alive and has lost track of the entry: Redis counts for how long an entry has not been renewed, and renewing resets that
clock, so that a slow order is not delivered to a second worker while this one is alive.

A process that was frozen learns from its first heartbeat afterwards that others may have reclaimed entries. It then renews all of
them before it commits or acks anything, and drops those that are lost. Even a row written in spite of that is guarded by the
order's version.
"""

import asyncio
import random
from collections.abc import Callable

from ingest.domain.errors import Unavailable
from ingest.flow.availability import until_available
from ingest.flow.clock import SharedClock, steady
from ingest.flow.held import Held
from ingest.flow.ports import Liveness
from ingest.telemetry.logs import get_logger

_log = get_logger("heartbeat")


class Heartbeats:
    """The heartbeats and lease renewals of one process.

    Attributes:
        consumers: how many consumers of the group have heartbeats, this one included.

    Args:
        queue: where heartbeats are sent and leases renewed.
        held: what is held.
        idle: seconds without renewal after which others claim an entry.
        lifetime: seconds after a heartbeat until this process counts as dead.
        shared: learns the queue's time from each heartbeat.
        clock: seconds, as `SharedClock` takes them.
        draw: a uniform random number between its arguments: processes that start together do not stay in step.
    """

    def __init__(
        self,
        queue: Liveness,
        held: Held,
        idle: float,
        lifetime: float,
        shared: SharedClock,
        *,
        clock: Callable[[], float] = steady,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._queue = queue
        self._held = held
        self._interval = idle / 3
        self._lifetime = lifetime
        self._shared = shared
        self._clock = clock
        self._draw = draw
        self.consumers = 1
        self._sent_at = 0.0
        self._leads = False
        self._is_unsure = False

    def leads(self) -> bool:
        """Whether this process does the group's maintenance: while its last heartbeat is valid, if that said so."""
        return self._leads and self._clock() < self._sent_at + self._lifetime

    async def run(self) -> None:
        """Send heartbeats and renew leases until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._keep_sending())
            parts.create_task(self._keep_renewing())

    async def send(self) -> None:
        """Send one heartbeat, waiting while Redis is unavailable; if entries may be lost, find out which."""
        await until_available("redis", self._send)
        if self._is_unsure:
            _log.warning("heartbeat_late", entries=len(self._held))
            await until_available("redis", self._verify)

    async def confirm(self) -> None:
        """Before a commit or an ack: if the last heartbeat has expired, find out what is still ours.

        While Redis is unavailable nobody can reclaim anything, so the commit need not wait for it.
        """
        if not self._is_unsure and self._clock() < self._sent_at + self._lifetime:
            return
        try:
            await self._send()
            await self._verify()
        except Unavailable:
            return

    async def renew(self) -> None:
        """Renew what is held for longer than an interval, and drop what others have claimed."""
        due = [delivery.entry for delivery in self._held.deliveries(min_age=self._interval)]
        if due:
            self._held.lose(await until_available("redis", self._queue.renew, due))

    async def _keep_sending(self) -> None:
        while True:
            await asyncio.sleep(self._draw(0.9, 1.1) * self._lifetime / 3)
            await self.send()

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self._draw(0.8, 1.0) * self._interval)
            await self.renew()

    async def _send(self) -> None:
        asked_at = self._clock()
        heartbeat = await self._queue.heartbeat(self._lifetime)
        self._shared.sample(heartbeat.now, asked_at)
        self._leads, self.consumers = heartbeat.leads, max(1, heartbeat.consumers)
        # By our own clock, too: the reply that told of the break may have been lost, and this one be the second.
        is_first = heartbeat.is_first or asked_at >= self._sent_at + self._lifetime
        self._sent_at = asked_at
        self._is_unsure |= is_first and len(self._held) > 0

    async def _verify(self) -> None:
        if self._is_unsure:
            self._held.lose(await self._queue.renew([delivery.entry for delivery in self._held.deliveries()]))
            self._is_unsure = False
