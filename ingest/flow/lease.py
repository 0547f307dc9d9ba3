"""What this process holds, and that it lives.

A heartbeat tells the others that this process lives; when it ends, they take over at once what the process held. Each
entry has a lease besides, for a process that lives and has forgotten it: Redis counts how long an entry has been silent, and
renewing resets that clock, so that a slow order is not handed to a second worker while this one lives.

A process that was frozen learns from its first beat afterwards that others may have taken over; it then asks for each of its
entries, before it commits or acks anything, and lets go of what is lost. A row written in spite of all is guarded by the
order's version.
"""

import asyncio
import random
from collections.abc import Callable, Iterable

from ingest.domain.delivery import Delivery, EntryRef
from ingest.domain.errors import Unavailable
from ingest.flow.clock import SharedClock, steady
from ingest.flow.patience import until_available
from ingest.flow.ports import Queue
from ingest.telemetry.logs import get_logger

_log = get_logger("lease")


class Leases:
    """What this process holds.

    Attributes:
        consumers: how many consumers of the group have heartbeats, this one included.

    Args:
        queue: where leases are renewed and heartbeats sent.
        idle: seconds of an entry's silence after which others claim it.
        lifetime: seconds after a heartbeat until this process counts as dead.
        shared: takes the queue's time from each beat.
        clock: seconds, as `SharedClock` takes them.
        draw: a uniform random number between its arguments: processes that start together do not stay in step.
    """

    def __init__(
        self,
        queue: Queue,
        idle: float,
        lifetime: float,
        shared: SharedClock,
        *,
        clock: Callable[[], float] = steady,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._queue = queue
        self._interval = idle / 3
        self._lifetime = lifetime
        self._shared = shared
        self._clock = clock
        self._draw = draw
        self.consumers = 1
        self._beaten_at = 0.0
        self._leads = False
        self._is_unsure = False
        self._since: dict[EntryRef, float] = {}
        self._deliveries: dict[EntryRef, Delivery] = {}
        self._undecided: dict[EntryRef, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._since)

    def held(self) -> list[EntryRef]:
        """The entries held now."""
        return list(self._since)

    def deliveries(self, entries: Iterable[EntryRef]) -> list[Delivery]:
        """The deliveries of those entries that are held."""
        return [self._deliveries[entry] for entry in entries if entry in self._deliveries]

    def holds(self, entry: EntryRef) -> bool:
        """Whether an entry is still ours, as far as we know."""
        return entry in self._since

    def undecided(self) -> dict[EntryRef, asyncio.Task[None]]:
        """The entries held without an outcome yet, each with the task that works, or has worked, on it."""
        return dict(self._undecided)

    def take(self, delivery: Delivery, work: asyncio.Task[None]) -> None:
        """Hold an entry on which `work` goes on; losing the lease before it is decided cancels the work."""
        self._since[delivery.entry] = self._clock()
        self._deliveries[delivery.entry] = delivery
        self._undecided[delivery.entry] = work

    def decided(self, entry: EntryRef) -> None:
        """The entry has an outcome; it is held until it is settled."""
        self._undecided.pop(entry, None)

    def drop(self, entry: EntryRef) -> None:
        """Hold the entry no longer: it is settled, given back, or lost."""
        self._since.pop(entry, None)
        self._deliveries.pop(entry, None)
        self._undecided.pop(entry, None)

    def leads(self) -> bool:
        """Whether this process does the group's maintenance: as long as its last heartbeat lasts, if that said so."""
        return self._leads and self._clock() < self._beaten_at + self._lifetime

    async def run(self) -> None:
        """Beat and renew until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._keep_beating())
            parts.create_task(self._keep_renewing())

    async def beat(self) -> None:
        """One heartbeat; waits while Redis is away. If others may have taken over meanwhile, learn what."""
        await until_available("redis", self._beat)
        if self._is_unsure:
            _log.warning("heartbeat_was_late", entries=len(self._since))
            await until_available("redis", self._make_sure)

    async def confirm(self) -> None:
        """Before a commit or an ack: if no heartbeat could be sent for its lifetime, see what is still ours.

        While Redis is away nobody can take anything over, so the commit need not wait for it.
        """
        if not self._is_unsure and self._clock() < self._beaten_at + self._lifetime:
            return
        try:
            await self._beat()
            await self._make_sure()
        except Unavailable:
            return

    async def renew(self) -> None:
        """Renew what is held for longer than an interval, and let go of what others have taken."""
        before = self._clock() - self._interval
        due = [entry for entry, since in self._since.items() if since <= before]
        if due:
            self._let_go(await until_available("redis", self._queue.renew, due))

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self._draw(0.9, 1.1) * self._lifetime / 3)
            await self.beat()

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self._draw(0.8, 1.0) * self._interval)
            await self.renew()

    async def _beat(self) -> None:
        asked_at = self._clock()
        heartbeat = await self._queue.heartbeat(self._lifetime)
        self._shared.sample(heartbeat.now, asked_at)
        self._leads, self.consumers = heartbeat.leads, max(1, heartbeat.consumers)
        # By our own clock, too: the reply that told of the break may have been lost, and this one be the second.
        is_first = heartbeat.is_first or asked_at >= self._beaten_at + self._lifetime
        self._beaten_at = asked_at
        self._is_unsure |= is_first and len(self._since) > 0

    async def _make_sure(self) -> None:
        if self._is_unsure:
            self._let_go(await self._queue.renew(self.held()))
            self._is_unsure = False

    def _let_go(self, lost: set[EntryRef]) -> None:
        for entry in lost:
            if not self.holds(entry):
                continue  # settled while the renewal was on its way
            _log.warning("lease_lost", entry_id=entry.id)
            work = self._undecided.get(entry)
            self.drop(entry)
            if work is not None:
                work.cancel()
