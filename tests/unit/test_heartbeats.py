"""Heartbeats and leases of one process: renewals, losses, and the time at which a loss must be detected."""

import asyncio
from contextlib import suppress

from fakes.group import MemoryGroup, Pending
from fakes.queue import MemoryQueue
from fakes.virtual_time import now, until, virtual_time

from ingest.domain.deliveries.delivery import Delivery
from ingest.flow.clock import SharedClock
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held

IDLE = 30.0
LIFETIME = 6.0


class Process:
    """The heartbeats of one process and its held entries."""

    def __init__(self) -> None:
        self.group = MemoryGroup(now)
        self.queue = MemoryQueue(self.group, "one")
        self.in_flight = Held(clock=now)
        self.clock = SharedClock(monotonic=now)
        self.heartbeats = Heartbeats(self.queue, self.in_flight, IDLE, LIFETIME, self.clock, clock=now)

    async def hold(self, *order_ids: str) -> list[Delivery]:
        self.group.add(*order_ids)
        deliveries = await self.queue.read(len(order_ids), 0)
        for delivery in deliveries:
            self.in_flight.add(delivery, asyncio.create_task(asyncio.sleep(0)))
        return deliveries

    def steal(self, delivery: Delivery) -> None:
        """Another consumer claims it."""
        self.group.pending[delivery.entry] = Pending("two", 2, now())


@virtual_time
async def test_leases_are_renewed_once_they_are_a_third_of_their_time_old() -> None:
    process = Process()
    await process.hold("a")

    await process.heartbeats.renew()
    early = process.group.calls["renew"]
    await asyncio.sleep(IDLE / 3)
    await process.heartbeats.renew()

    assert (early, process.group.calls["renew"]) == (0, 1)
    assert [pending.renewed_at for pending in process.group.pending.values()] == [now()]


@virtual_time
async def test_a_renewal_drops_what_others_have_claimed() -> None:
    process = Process()
    kept, lost = await process.hold("kept", "lost")
    await asyncio.sleep(IDLE / 3)
    process.steal(lost)

    await process.heartbeats.renew()

    assert process.in_flight.deliveries() == [kept]


@virtual_time
async def test_a_process_that_runs_loses_no_lease_and_is_never_taken_for_dead() -> None:
    process = Process()
    await process.heartbeats.send()
    [held] = await process.hold("a")
    running = asyncio.create_task(process.heartbeats.run())
    other = MemoryQueue(process.group, "two")
    for _ in range(100):
        await asyncio.sleep(3)
        await other.heartbeat(LIFETIME)
        found = await other.claim_abandoned(10)
        assert (found.dead, found.released, (await other.sweep(IDLE)).released) == ([], [], 0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

    assert process.in_flight.holds(held)


@virtual_time
async def test_after_a_late_heartbeat_everything_held_is_checked_before_anything_else() -> None:
    process = Process()
    await process.heartbeats.send()
    kept, lost = await process.hold("kept", "lost")
    await asyncio.sleep(LIFETIME)
    process.steal(lost)

    await process.heartbeats.send()

    assert process.in_flight.deliveries() == [kept]


@virtual_time
async def test_a_break_that_only_redis_has_noticed_is_followed_by_a_check() -> None:
    process = Process()
    await process.heartbeats.send()
    kept, lost = await process.hold("kept", "lost")
    process.group.heard_until.clear()  # a failover to a server that is behind
    process.steal(lost)

    await process.heartbeats.send()

    assert process.in_flight.deliveries() == [kept]


@virtual_time
async def test_while_the_last_heartbeat_is_valid_a_commit_is_confirmed_without_a_call() -> None:
    process = Process()
    await process.heartbeats.send()
    await process.hold("a")
    calls = process.group.calls.total()

    await asyncio.sleep(LIFETIME - 0.01)
    await process.heartbeats.confirm()

    assert process.group.calls.total() == calls


@virtual_time
async def test_after_the_last_heartbeat_has_expired_a_commit_waits_until_it_is_known_what_is_lost() -> None:
    process = Process()
    await process.heartbeats.send()
    kept, lost = await process.hold("kept", "lost")
    await asyncio.sleep(LIFETIME)
    process.steal(lost)

    await process.heartbeats.confirm()

    assert process.in_flight.deliveries() == [kept]
    assert process.heartbeats.leads(), "and a heartbeat was sent"


@virtual_time
async def test_if_the_reply_that_told_of_a_break_was_lost_the_next_one_leads_to_the_check_all_the_same() -> None:
    process = Process()
    await process.heartbeats.send()
    [lost] = await process.hold("lost")
    await asyncio.sleep(LIFETIME)
    process.steal(lost)
    process.group.lost_replies["heartbeat"] = 1

    await process.heartbeats.confirm()
    unknown = process.in_flight.holds(lost)
    await process.heartbeats.confirm()

    assert (unknown, process.in_flight.holds(lost)) == (True, False)


@virtual_time
async def test_if_the_check_fails_the_next_commit_makes_it_again() -> None:
    process = Process()
    await process.heartbeats.send()
    [lost] = await process.hold("lost")
    await asyncio.sleep(LIFETIME)
    process.steal(lost)
    process.group.refused["renew"] = 1

    await process.heartbeats.confirm()
    await process.heartbeats.confirm()

    assert not process.in_flight.holds(lost)


@virtual_time
async def test_while_redis_is_unavailable_a_commit_does_not_wait_for_it() -> None:
    process = Process()
    await process.heartbeats.send()
    [held] = await process.hold("a")
    await asyncio.sleep(10 * LIFETIME)
    process.group.set_available(is_available=False)
    before = now()

    await process.heartbeats.confirm()

    assert now() == before
    assert process.in_flight.holds(held)


@virtual_time
async def test_it_leads_only_while_its_last_heartbeat_is_valid() -> None:
    process = Process()
    never = process.heartbeats.leads()
    await process.heartbeats.send()
    first = process.heartbeats.leads()
    await asyncio.sleep(LIFETIME)

    assert (never, first, process.heartbeats.leads()) == (False, True, False)


@virtual_time
async def test_a_heartbeat_tells_the_queues_time_and_how_many_consumers_there_are() -> None:
    process = Process()
    process.group.clock = lambda: now() + 3_600.0
    await MemoryQueue(process.group, "two").heartbeat(LIFETIME)

    await process.heartbeats.send()

    assert process.heartbeats.consumers == 2
    assert abs(process.clock.now() - (now() + 3_600.0)) < 0.01


@virtual_time
async def test_a_heartbeat_waits_until_redis_is_available() -> None:
    process = Process()
    process.group.set_available(is_available=False)
    sending = asyncio.create_task(process.heartbeats.send())
    await asyncio.sleep(60)
    assert not sending.done()

    process.group.set_available(is_available=True)

    await until(sending.done)
    assert "one" in process.group.heard_until
