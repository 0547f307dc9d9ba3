"""Reports that this process is alive, with its report, and renews the leases of its deliveries.

When the heartbeats of a process end, other processes reclaim its entries immediately. In addition, each entry has a lease, in case a
live process loses track of it. Redis measures the time since an entry was renewed, and renewing resets that clock, so that a slow order
is not delivered to a second worker.

After a process was frozen, its first heartbeat reports that other processes may have reclaimed entries. The process then renews all
entries before it commits or acks any of them, and drops the lost ones. A row that is written nevertheless is guarded by the version of
the order.
"""

import asyncio
from collections.abc import Callable

from ingest.domain.errors import Unavailable
from ingest.domain.operating.source_state import NO_REPORT, ProcessReport
from ingest.flow.availability import until_available
from ingest.flow.clock import SharedClock, steady
from ingest.flow.held import Held
from ingest.flow.ports import Liveness
from ingest.flow.ticks import sleep_to_tick
from ingest.telemetry.logs import get_logger

_log = get_logger("heartbeat")


class Heartbeats:
    """The heartbeats and lease renewals of one process.

    Attributes:
        consumers: how many consumers of the group have heartbeats, including this one.

    Args:
        idle: seconds without renewal after which other processes claim an entry.
        lifetime: seconds after a heartbeat until this process counts as dead.
        shared: set to the time of the queue by each heartbeat.
        report: returns the current report of this process.
        clock: seconds, as in `SharedClock`.
    """

    def __init__(
        self,
        queue: Liveness,
        held: Held,
        idle: float,
        lifetime: float,
        shared: SharedClock,
        report: Callable[[], ProcessReport] = lambda: NO_REPORT,
        *,
        clock: Callable[[], float] = steady,
    ) -> None:
        self._queue = queue
        self._held = held
        self._interval = idle / 3
        self._lifetime = lifetime
        self._shared = shared
        self._clock = clock
        self.consumers = 1
        self._report = report
        self._sent_at = 0.0
        self._leads = False
        self._is_unsure = False

    def leads(self) -> bool:
        """Whether this process does the maintenance of the group, according to its last heartbeat, while that is valid."""
        return self._leads and self._clock() < self._sent_at + self._lifetime

    async def run(self) -> None:
        """Send heartbeats and renew leases until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._keep_sending())
            parts.create_task(self._keep_renewing())

    async def send(self) -> None:
        """Send one heartbeat, waiting while Redis is unavailable. If entries may be lost, check which."""
        await until_available("redis", self._send)
        if self._is_unsure:
            _log.warning("heartbeat_late", entries=len(self._held))
            await until_available("redis", self._verify)

    async def confirm(self) -> None:
        """Check before a commit or an ack which entries are still held, if the last heartbeat has expired.

        While Redis is unavailable, no process can reclaim entries, so that the commit does not wait for Redis.
        """
        if not self._is_unsure and self._clock() < self._sent_at + self._lifetime:
            return
        try:
            await self._send()
            await self._verify()
        except Unavailable:
            return

    async def renew(self) -> None:
        """Renew the entries held for longer than an interval, and drop those that other processes have claimed."""
        due = [delivery.entry for delivery in self._held.deliveries(min_age=self._interval)]
        if due:
            self._held.lose(await until_available("redis", self._queue.renew, due))

    async def _keep_sending(self) -> None:
        while True:
            await sleep_to_tick(self._lifetime / 3)
            await self.send()

    async def _keep_renewing(self) -> None:
        while True:
            await sleep_to_tick(0.9 * self._interval)
            await self.renew()

    async def _send(self) -> None:
        asked_at = self._clock()
        heartbeat = await self._queue.heartbeat(self._lifetime, self._shared.bounds, self._report())
        self._shared.sample(heartbeat.now, asked_at)
        self._leads, self.consumers = heartbeat.leads, max(1, heartbeat.consumers)
        # The local clock counts as well, because the reply that reported the break may have been lost.
        is_first = heartbeat.is_first or asked_at >= self._sent_at + self._lifetime
        self._sent_at = asked_at
        self._is_unsure |= is_first and len(self._held) > 0

    async def _verify(self) -> None:
        if self._is_unsure:
            self._held.lose(await self._queue.renew([delivery.entry for delivery in self._held.deliveries()]))
            self._is_unsure = False
