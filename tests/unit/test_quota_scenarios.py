"""Processes that share a quota never exceed it, in random scenarios with the fake server.

`tests/contract/test_quota_scenarios_on_servers.py` plays the same scenarios with the real scripts.
"""

import asyncio
from itertools import count

import pytest
from fakes.leases import MemoryLeases, MemoryQuota
from fakes.virtual_time import now, until, virtual_time
from fakes.workers import metrics
from quota_scenarios import Connect, Network, play, seeds

from ingest.domain.fetch.quota import Lease, LeaseRequest, QuotaLimits
from ingest.upstream.quota.quota import FleetQuota, QuotaLeases
from ingest.upstream.session import utc_now


class DistantLeases:
    """The leases of one process behind a network."""

    def __init__(self, leases: MemoryLeases, network: Network) -> None:
        self._leases = leases
        self._network = network

    async def lease(self, request: LeaseRequest) -> Lease:
        return await self._network.call(lambda: self._leases.lease_now(request))

    async def end(self, unused: int) -> None:
        await self._network.call(lambda: self._leases.end_now(unused))


def serve(limits: QuotaLimits) -> Connect:
    server, names = MemoryQuota(limits, now, is_new=True), count()

    def connect(network: Network) -> QuotaLeases:
        return DistantLeases(server.member(str(next(names))), network)

    return connect


@pytest.mark.parametrize("seed", seeds(usually=50))
def test_the_processes_of_a_scenario_keep_the_quota(seed: int) -> None:
    outcome = play(seed, serve)

    assert outcome.keeps_the_quota, outcome
    assert outcome.begun


class HeldLeases:
    """The leases of a process. Replies are held back until the next `passing`, which lets one pass."""

    def __init__(self, leases: QuotaLeases) -> None:
        self._leases = leases
        self.held: asyncio.Future[None] | None = None
        self.holds = False

    async def lease(self, request: LeaseRequest) -> Lease:
        lease = await self._leases.lease(request)
        if self.holds:
            self.held = asyncio.get_running_loop().create_future()
            await self.held
        return lease

    async def end(self, unused: int) -> None:
        await self._leases.end(unused)


@virtual_time
async def test_a_process_whose_demand_falls_begins_nothing_by_its_former_lease_while_its_call_is_on_its_way() -> None:
    limits, own = QuotaLimits(concurrency=5), metrics()
    server = MemoryQuota(limits, now)
    leases, other = HeldLeases(server.member("a")), server.member("b")
    quota = FleetQuota(leases, limits, 5.0, own.rate_limit_wait, own.upstream_quota, utc_now, lambda _: None, clock=now)
    running = asyncio.create_task(quota.run())
    await asyncio.gather(*(quota.acquire() for _ in range(5)))
    for _ in range(4):
        quota.release()

    # The server has carried out a call for fewer requests, and its reply is late.
    leases.holds = True
    granted = 0
    while not granted:
        if leases.held is not None:
            leases.held.set_result(None)
        leases.held = None
        await until(lambda: leases.held)
        granted = (await other.lease(LeaseRequest(concurrency=5))).limit
    began = [asyncio.create_task(quota.acquire()) for _ in range(4)]
    await asyncio.sleep(0.1)

    assert 1 + sum(task.done() for task in began) + granted <= 5
    for task in (running, *began):
        task.cancel()
    await asyncio.wait([running, *began])
