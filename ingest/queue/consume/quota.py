"""The shared quota in Redis: leases of one process, and the pause of the whole fleet.

Each quota uses one key of fixed size, named after the quota rather than the queue, so that several services can share it. See the scripts
`quota_lease`, `quota_end` and `quota_pause`. If the process dies here, its share expires within four seconds.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any, Self

from ingest.domain.fetch.quota import Lease, LeaseRequest, QuotaLimits
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.redis.combined_calls import CombinedCalls
from ingest.queue.redis.connection import translating


def quota_key(name: str) -> str:
    """The key of a quota."""
    return f"ingest:{{quota:{name}}}:state"


class FleetQuotaClient:
    """Keeps the contracts of `ingest.upstream.quota.quota.QuotaLeases` and `ingest.flow.ports.FleetPauses`.

    All processes that share the quota have the same limits.
    """

    def __init__(
        self, calls: CombinedCalls, key: str, limits: QuotaLimits, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        self._calls = calls
        self._confirm = confirm
        self._key = key
        self._limits = limits
        self._contribution: str | bytes = ""
        # The end of the last place that this process has booked, as the script has returned it.
        self._booked: str | bytes = ""

    @classmethod
    def on(cls, connections: QueueConnections, name: str, limits: QuotaLimits) -> Self:
        """A client of the quota with that name. Its connection is for quotas only."""
        return cls(connections.quota_calls, quota_key(name), limits, connections.topology.confirm)

    @translating
    async def lease(self, request: LeaseRequest) -> Lease:
        """Renew this process's lease, and adapt it to the current demand.

        A former primary, which still responds on the smaller side of a split network, would grant the whole quota again.
        """
        await self._confirm()
        limits = self._limits
        contribution, self._contribution = self._contribution, ""
        arguments = [contribution, repr(request.rate or limits.rate), limits.burst, limits.concurrency, request.tokens]
        arguments += [request.concurrency, request.claim, math.ceil(request.transit * 1000), int(request.is_back)]
        arguments += [repr(request.slowest), int(request.slow_for * 1000), request.members, int(request.is_unused)]
        arguments.append(int(limits.starts_full))
        reply = await self._run("quota_lease", arguments)
        lease = _lease_of(reply)
        self._contribution = reply[0]
        if lease.tokens:
            self._booked = reply[1]
        return lease

    @translating
    async def end(self, unused: int) -> None:
        """End the lease, which leaves the rest of it to the others."""
        contribution, self._contribution = self._contribution, ""
        await self._run("quota_end", [contribution, self._booked, unused])

    @translating
    async def pause(self, seconds: float) -> float:
        """Pause all processes for `seconds` (0 only reads), and return for how many seconds they pause."""
        return int(await self._run("quota_pause", [int(seconds * 1000)])) / 1000

    async def _run(self, script: str, arguments: list[str | bytes | int]) -> Any:
        return await self._calls.call(script, [self._key], arguments)


def _lease_of(reply: Any) -> Lease:
    members, tokens, starts, spacing, limit, period, asks, is_learning, paused, time = map(int, reply[2:])
    return Lease(
        tokens=tokens,
        starts_in=starts / 1e6,
        spacing=spacing / 1e6,
        limit=limit,
        period=period / 1000,
        renew_in=asks / 1000,
        members=members,
        is_learning=bool(is_learning),
        paused=paused / 1000,
        time=time / 1e6,
    )
