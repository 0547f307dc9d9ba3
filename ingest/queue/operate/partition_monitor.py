"""Reports the state of one partition, and of its consumers. Changes nothing."""

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.outage import Outage
from ingest.queue.consume.liveness import read_report, report_key
from ingest.queue.layout.keys import DEFAULT_GROUP, Keys
from ingest.queue.operate.queue_states import read_states
from ingest.queue.redis.connection import NoGroup, QueueRefused, control_client, replies, translated, translating
from ingest.queue.redis.topology import Server, topology_of


@dataclass(frozen=True, slots=True)
class CircuitState:
    """An open circuit.

    Attributes:
        error: the error that opened it.
        open_for: seconds.
        is_unproven: whether an operator has to decide if the orders are at fault, see `Outage`.
    """

    error: str
    open_for: float
    is_unproven: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One consumer of the group.

    Attributes:
        pending: entries it holds, in all lanes.
        idle: seconds since its last command for the group, or None if there was none yet. Before Redis 7.2, only commands that
            deliver something count.
        state: alive or stale, by its heartbeat. Unknown for a consumer that never had one, such as another program's.
        stale_for: seconds since its heartbeat expired, or None unless stale, and for a consumer that has stopped in order.
        circuit: its open circuit, if any: why it sends no requests to the external API.
    """

    name: str
    pending: int
    idle: float | None
    state: Literal["alive", "stale", "unknown"] = "unknown"
    stale_for: float | None = None
    circuit: CircuitState | None = None


class PartitionMonitor:
    """Reads the state of one queue and of one of its groups.

    Its methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(self, client: Redis, queue: str, group: str) -> None:
        self._client = client
        self._queue = queue
        self._keys = Keys.of(queue, group)
        self._group = group
        self._streams = self._keys.stream, self._keys.express

    async def state(self) -> QueueState:
        """The state of the queue, in one round trip."""
        [state] = await read_states(self._client, [self._queue], self._group)
        if isinstance(state, QueueUnavailable):
            raise state
        return state

    @translating
    async def consumers(self) -> list[ConsumerState]:
        """Every consumer with a heartbeat or in the group, by name."""
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hmget(self._keys.clock, "ahead", "noted_at", "latest")
            pipe.zrangebyscore(self._keys.alive, "-inf", "+inf", withscores=True)
            (seconds, micros), noted, heartbeats = await replies(pipe)
        now = _queue_time(seconds + micros / 1e6, *(int(value or 0) / 1000 for value in noted))
        members = await self._members()
        for name, until in heartbeats:
            known = members.get(name) or ConsumerState(_text(name), 0, None)
            members[name] = _with_heartbeat(known, until / 1000, now)
        alive = [name for name, member in members.items() if member.state == "alive"]
        for name, circuit in (await self._circuits(alive)).items():
            state = CircuitState(circuit.error, max(0.0, now - circuit.since), circuit.is_unproven)
            members[name] = replace(members[name], circuit=state)
        return sorted(members.values(), key=lambda member: member.name)

    @translating
    async def traps(self) -> list[str]:
        """Server settings that can lose entries, one line each. None if the server does not return them."""
        try:
            with translated():
                server = await self._client.info()
        except QueueRefused:
            return []
        lines = []
        policy = server.get("maxmemory_policy", "noeviction")
        if policy.startswith("volatile-"):
            # The queue's own keys do not expire, so that these policies do not delete them.
            lines.append(
                f"maxmemory-policy is {policy}: without memory, Redis deletes idempotency records, and orders may be queued twice;"
                " set it to noeviction"
            )
        elif policy != "noeviction":
            lines.append(f"maxmemory-policy is {policy}: Redis may delete the queue itself; set it to noeviction")
        if not server.get("aof_enabled"):
            lines.append("appendonly is off: what Redis accepts since its last snapshot is lost when it restarts")
        return lines

    async def _members(self) -> dict[bytes, ConsumerState]:
        """The group's consumers in Redis, over both lanes."""
        members: dict[bytes, ConsumerState] = {}
        for stream in self._streams:
            for row in await self._rows(stream):
                name, pending, idle = row["name"], int(row["pending"]), row["idle"] / 1000
                known = members.get(name) or ConsumerState(_text(name), 0, idle)
                members[name] = replace(known, pending=known.pending + pending, idle=min(known.idle or 0.0, idle))
        return members

    async def _rows(self, stream: str) -> list[dict[str, Any]]:
        """The group's consumers in one lane, or none if the stream or its group does not exist."""
        try:
            with translated():
                rows: list[dict[str, Any]] = await self._client.xinfo_consumers(stream, self._group)
        except NoGroup:
            return []
        return rows

    async def _circuits(self, names: list[bytes]) -> dict[bytes, Outage]:
        """The open circuits of these consumers."""
        if not names:
            return {}
        async with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.get(report_key(self._keys, "").encode() + name)
            reports = [read_report(raw) for raw in await replies(pipe)]
        return {name: report for name, report in zip(names, reports, strict=True) if report is not None}


async def traps_of_servers(url: str) -> list[str]:
    """The traps of each primary at a URL, see `PartitionMonitor.traps`. With several, each line begins with the address.

    Raises:
        QueueUnavailable: Redis cannot be used right now.
    """
    with translated():
        servers = await topology_of(url).primaries()

    async def traps_of(server: Server) -> list[str]:
        node = f"node {await server.current_address()}: " if len(servers) > 1 else ""
        try:
            with translated():
                async with control_client(server) as client:
                    return [node + trap for trap in await PartitionMonitor(client, "", DEFAULT_GROUP).traps()]
        except QueueUnavailable as error:
            if not node:
                raise
            return [f"{node}cannot be examined: {error}"]

    return [line for lines in await asyncio.gather(*map(traps_of, servers)) for line in lines]


def _queue_time(own: float, ahead: float, noted_at: float, latest: float) -> float:
    """The time of heartbeats, which neither goes back nor jumps ahead when Redis' own does: see `_now.lua`."""
    left = max(0.0, abs(ahead) - max(0.0, own - noted_at) / 100)
    return max(own + math.copysign(left, ahead), latest)


def _with_heartbeat(member: ConsumerState, until: float, now: float) -> ConsumerState:
    """The consumer with a heartbeat that is valid until a time, or 0 if the consumer itself has ended it."""
    if until > now:
        return replace(member, state="alive")
    return replace(member, state="stale", stale_for=now - until if until else None)


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
