"""Every call of ours on a queue of some size, each measured several times."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from consumers import Consumer
from dead_letter_entries import open_dead_letters
from redis.asyncio import Redis
from rehearsals.scale.meter import Costs, Meter
from rehearsals.scale.state import GROUP, Size, add, fall_silent, fill, hold

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.partition_monitor import PartitionMonitor
from ingest.queue.operate.scanner import Page, PartitionScanner, _Position
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

NOW = 0.001
_LIFETIME = 3600.0
_LEASE = 3600.0
_TIMES = 9
_MOST_SAMPLES = 40
# As in ingest.flow.group.maintenance.
_DUE_AT_ONCE = 100
_TRIM_AT_ONCE = 100
# As in ingest.flow.reaper.
_CLAIMED_AT_ONCE = 100


class Calls:
    """Our calls on one queue, which must have the given size.

    Args:
        redis: a raw connection for measurements and preparations.
        url: URL of the same server.
        queue: name of the queue.
        size: size of the queue.
    """

    def __init__(self, redis: Redis, url: str, queue: str, size: Size) -> None:
        self._redis = redis
        self._url = url
        self._queue = queue
        self._keys = Keys.of(queue)
        self._size = size

    async def measure(self) -> Costs:
        """Fill the queue, and make every call."""
        await fill(self._redis, self._keys, self._size)
        meter = await Meter.on(self._redis)
        async with self._consumer("worker") as worker:
            await self._look(meter)
            await self._sweep(meter, worker)
            await self._work(meter, worker)
            await self._hold_many(meter)
            await self._take_over(meter, worker)
            await self._move_due(meter, worker)
            await self._remove(meter, worker)
            await self._settle_for_two(meter)
            await self._dead_letters(meter)
            return meter.costs

    @asynccontextmanager
    async def _consumer(self, name: str, queue: str = "") -> AsyncIterator[Consumer]:
        async with Consumer.open(self._url, queue or self._queue, GROUP, name, 1.0) as consumer:
            await consumer.ensure_group()
            await consumer.heartbeat(_LIFETIME)
            await self._redis.zadd(Keys.of(queue or self._queue).standing, {name: 0})
            yield consumer

    async def _read(self, consumer: Consumer, count: int) -> list[Delivery]:
        """This number of entries, in reads of the usual size of a process."""
        taken: list[Delivery] = []
        while len(taken) < count and (more := await consumer.read(min(500, count - len(taken)), NOW)):
            taken += more
        return taken

    # -- read-only calls -------------------------------------------------------------------------------

    async def _look(self, meter: Meter) -> None:
        async with control_client(self._url) as client:
            monitor = PartitionMonitor(client, self._queue, GROUP)
            for _ in range(_TIMES):
                async with meter.call("status: state"):
                    await monitor.state()
                async with meter.call("status: consumers"):
                    await monitor.consumers()
            scanner = PartitionScanner(client, self._queue, GROUP)
            main = _Position(self._keys.stream, self._keys.settled)
            for name, part in (("main lane", scanner._lane(main)), ("retries", scanner._retries())):
                async with meter.call(f"reconcile: a page of the {name}"), aclosing(part) as pages:
                    async for _ in _first(_MOST_SAMPLES, pages):
                        pass

    # -- one process's own work -----------------------------------------------------------------------------

    async def _work(self, meter: Meter, worker: Consumer) -> None:
        async with Producer.connect(self._url, self._queue) as producer:
            await producer.enqueue(["first"])
            for number in range(_TIMES):
                async with meter.call("enqueue, 500"):
                    await producer.enqueue([f"new-{number}-{order}" for order in range(500)])
        for _ in range(_TIMES):
            async with meter.call("heartbeat"):
                await worker.heartbeat(_LIFETIME)
            async with meter.call("read, 500"):
                taken = await worker.read(500, NOW)
            async with meter.call("renew, 500, a page"):
                await worker.renew([delivery.entry for delivery in taken])
            async with meter.call("reschedule"):
                await worker.reschedule(taken.pop(), 3600.0, 2)
            async with meter.call("dead-letter"):
                await worker.dead_letter(taken.pop(), DeadReason.NOT_FOUND, "HTTP 404")
            async with meter.call("ack, 500, a page"):
                assert await worker.ack([delivery.entry for delivery in taken]) == len(taken)

    async def _hold_many(self, meter: Meter) -> None:
        """As much as one process can hold, and its end."""
        many = max(1000, self._size.pending // 10)
        async with self._consumer("predecessor") as predecessor:
            held = await self._read(predecessor, many)
            known = [delivery.entry for delivery in held]
            for _ in range(_TIMES):
                async with meter.call("claim own, all known, a page"):
                    assert await predecessor.claim_own(500, known) == []
                async with meter.call("claim own, 100"):
                    assert len(await predecessor.claim_own(100, ())) == 100
            async with meter.call("renew, as many as one holds, a page"):
                await predecessor.renew(known)
            async with meter.call("leave, with as many as one holds"):
                assert await predecessor.leave() > 0
            await predecessor.heartbeat(_LIFETIME)
            async with meter.call("release, a page"):
                assert await predecessor.release(held) == len(held)
            async with meter.call("leave"):
                await predecessor.leave()

    # -- entries of other consumers --------------------------------------------------------------------------------

    async def _take_over(self, meter: Meter, worker: Consumer) -> None:
        # The last call has left many entries released.
        async def is_through() -> bool:
            await self._abandoned(worker)
            return not await self._redis.zcard(self._keys.released)

        await _all_of(meter, "claim abandoned, 100 released", is_through)
        for _ in range(_TIMES):
            async with meter.call("claim abandoned, nothing"):
                assert not any(await self._abandoned(worker))
        names = [f"dead-{number}" for number in range(100)]
        await hold(self._redis, self._keys, names, 100 * 50)
        await fall_silent(self._redis, self._keys, names)
        claimed = 0
        while claimed < 100 * 50:
            async with meter.call("claim abandoned, 100 of 100 dead"):
                claimed += (await self._abandoned(worker))[1]
        empty = [f"empty-{number}" for number in range(1000)]
        await self._join(empty)
        await fall_silent(self._redis, self._keys, empty)
        for _ in range(50):
            async with meter.call("claim abandoned, 1,000 dead hold nothing"):
                await self._abandoned(worker)

    async def _abandoned(self, worker: Consumer) -> tuple[int, int]:
        found = await worker.claim_abandoned(_CLAIMED_AT_ONCE)
        return len(found.released), len(found.dead)

    async def _join(self, names: list[str]) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.xgroup_createconsumer(self._keys.stream, GROUP, name)
            await pipe.execute()

    # -- maintenance ------------------------------------------------------------------------------------------

    async def _sweep(self, meter: Meter, worker: Consumer) -> None:
        await self._sweep_all(meter, worker, "sweep, a page of what is held")
        # As if an operator had removed live consumers.
        names = [f"removed-{number}" for number in range(10)]
        lost = max(500, self._size.pending // 10)
        await hold(self._redis, self._keys, names, lost)
        for name in names:
            await self._redis.xgroup_delconsumer(self._keys.stream, GROUP, name)
        restored = 0
        while not restored:
            restored = (await worker.sweep(_LEASE)).restored

        async def is_restored() -> bool:
            nonlocal restored
            restored += (await worker.sweep(_LEASE)).restored
            return restored >= lost

        await _all_of(meter, "sweep, a page of what was lost", is_restored)

    async def _sweep_all(self, meter: Meter, worker: Consumer, name: str) -> None:
        async def is_complete() -> bool:
            return (await worker.sweep(_LEASE)).is_complete

        await _all_of(meter, name, is_complete)

    async def _move_due(self, meter: Meter, worker: Consumer) -> None:
        for _ in range(min(_MOST_SAMPLES, self._size.retries // _DUE_AT_ONCE)):
            async with meter.call("move due, a page"):
                assert await worker.move_due(_DUE_AT_ONCE) == _DUE_AT_ONCE

    async def _remove(self, meter: Meter, worker: Consumer) -> None:
        for _ in range(_TIMES):
            async with meter.call("remove stale, none of all is"):
                assert await worker.remove_stale(300.0) == 0
        await self._join([f"gone-{number}" for number in range(1000)])
        async with meter.call("remove stale, 1,000"):
            assert await worker.remove_stale(0.0) >= 1000

    async def _settle_for_two(self, meter: Meter) -> None:
        """With a second group, entries stay until it has finished them too."""
        queue = f"{self._queue}-shared"
        keys = Keys.of(queue)
        async with self._consumer("worker", queue) as worker:
            await self._redis.xgroup_create(keys.stream, "other", id="0")
            await add(self._redis, keys, self._size.pending + self._size.queued // 10)
            for number in range(self._size.pending // 500):
                taken = await worker.read(500, NOW)
                if number >= _TIMES:
                    await worker.ack([delivery.entry for delivery in taken])
                    continue
                async with meter.call("ack, 500, a page, with a second group"):
                    await worker.ack([delivery.entry for delivery in taken])
            await self._sweep_all(meter, worker, "sweep, a page of what is settled")
            for _ in range(_TIMES):
                async with meter.call("trim, nothing"):
                    assert await worker.trim(_TRIM_AT_ONCE) == 0
            await self._redis.xgroup_setid(keys.stream, "other", "$")

            async def is_trimmed() -> bool:
                return not await worker.trim(_TRIM_AT_ONCE)

            await _all_of(meter, "trim, a page", is_trimmed)

    # -- dead letters ------------------------------------------------------------------------------------------

    async def _dead_letters(self, meter: Meter) -> None:
        everything = Selection(everything=True)
        async with open_dead_letters(self._url, self._queue) as letters:
            async with meter.call("dead letters: a page"):
                examined = 0
                async with aclosing(letters.newest_first(everything)) as pages:
                    async for page in pages:
                        if (examined := examined + page.examined) > 50_000:
                            break
            async with meter.call("dead letters: survey, a page"):
                await letters.survey(Selection(reasons=frozenset({"rejected"})))
            async with meter.call("dead letters: replay, a page"):
                await letters.change(JobKind.REPLAY, everything, newest=await self._some_dead())
            async with meter.call("dead letters: drop, a page"):
                await letters.change(JobKind.DROP, everything, newest=await self._some_dead())

    async def _some_dead(self) -> str:
        entries = await self._redis.xrange(self._keys.dead, count=min(2000, self._size.dead // 3))
        return entries[-1][0].decode()


async def _first(count: int, pages: AsyncGenerator[Page, None]) -> AsyncIterator[Page]:
    async for page in pages:
        yield page
        count -= 1
        if not count:
            return


async def _all_of(meter: Meter, name: str, is_done: Callable[[], Awaitable[bool]]) -> None:
    """Call until done. The first calls are measured one by one, the others together."""
    for _ in range(_MOST_SAMPLES):
        async with meter.call(name):
            if await is_done():
                return
    async with meter.call(f"{name}, mean"):
        while not await is_done():
            pass
