"""Reports the state of one partition, and of its consumers. Changes nothing."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.source_state import Reason, merged
from ingest.queue.consume.liveness import read_report, report_key
from ingest.queue.layout.keys import DEFAULT_GROUP, Keys
from ingest.queue.operate.queue_states import read_states
from ingest.queue.redis.connection import NoGroup, QueueRefused, control_client, translated, translating
from ingest.queue.redis.topology import Server, topology_of


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One consumer of the group.

    Attributes:
        pending: entries it holds, in all lanes.
        idle: seconds since its last command for the group, or None if there was none yet. Before Redis 7.2, only commands that
            deliver something count.
        state: alive or stale, by its heartbeat. Unknown for a consumer that never had one, such as another program's.
        stale_for: seconds since its heartbeat expired, or None unless stale, and for a consumer that has stopped in order.
        reasons: why it does not work, as far as it is alive.
    """

    name: str
    pending: int
    idle: float | None
    state: Literal["alive", "stale", "unknown"] = "unknown"
    stale_for: float | None = None
    reasons: Sequence[Reason] = ()


@dataclass(frozen=True, slots=True)
class GroupState:
    """The consumers of a group.

    Attributes:
        consumers: with a heartbeat or in the group, by name.
        last_heartbeat: of any of them, in Unix seconds by the queue's clock. None if there was none.
    """

    consumers: list[ConsumerState]
    last_heartbeat: float | None = None


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

    async def consumers(self) -> list[ConsumerState]:
        """Every consumer with a heartbeat or in the group, by name."""
        return (await self.members()).consumers

    @translating
    async def members(self) -> GroupState:
        """The consumers of the group, and the time of the last heartbeat."""
        [state], members = await read_heartbeats(self._client, [self._keys]), await self._members()
        if isinstance(state, Exception):
            raise state
        with_heartbeat = {each.name: each for each in state.consumers}
        for name, known in members.items():
            if (found := with_heartbeat.pop(_text(name), None)) is not None:
                members[name] = replace(found, pending=known.pending, idle=known.idle)
        consumers = sorted([*members.values(), *with_heartbeat.values()], key=lambda member: member.name)
        return replace(state, consumers=consumers)

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


async def read_heartbeats(client: Redis, queues: Sequence[Keys]) -> list[GroupState | Exception]:
    """Return the consumers of each queue that have a heartbeat, with the reasons of those that are alive, in two round trips.

    A queue whose keys cannot be read has the error instead.
    """
    async with client.pipeline(transaction=False) as pipe:
        for keys in queues:
            pipe.time()
            pipe.hmget(keys.clock, "ahead", "noted_at", "latest")
            pipe.zrangebyscore(keys.alive, "-inf", "+inf", withscores=True)
        found = await pipe.execute(raise_on_error=False)
    groups = [_group(found[3 * at : 3 * at + 3]) for at in range(len(queues))]
    alive = [
        (keys, group, at, name)
        for keys, group in zip(queues, groups, strict=True)
        if not isinstance(group, Exception)
        for at, name in group.alive
    ]
    if alive:
        async with client.pipeline(transaction=False) as pipe:
            for keys, _, _, name in alive:
                pipe.get(report_key(keys, "").encode() + name)
            reports = await pipe.execute(raise_on_error=False)
        for (_, group, at, _), raw in zip(alive, reports, strict=True):
            if not isinstance(raw, Exception) and (reasons := read_report(raw, Reason)):
                group.consumers[at] = replace(group.consumers[at], reasons=merged(reasons))
    return [group if isinstance(group, Exception) else GroupState(group.consumers, group.latest) for group in groups]


@dataclass(frozen=True, slots=True)
class _Heartbeats:
    consumers: list[ConsumerState]
    alive: list[tuple[int, bytes]]
    latest: float | None


def _group(found: Sequence[Any]) -> _Heartbeats | Exception:
    """The consumers by the replies about one queue, and which of them are alive."""
    if error := next((each for each in found if isinstance(each, Exception)), None):
        return error
    (seconds, micros), noted, heartbeats = found
    now = _queue_time(seconds + micros / 1e6, *(int(value or 0) / 1000 for value in noted))
    consumers = [_with_heartbeat(ConsumerState(_text(name), 0, None), until / 1000, now) for name, until in heartbeats]
    alive = [(at, name) for at, (name, _) in enumerate(heartbeats) if consumers[at].state == "alive"]
    return _Heartbeats(consumers, alive, int(noted[2]) / 1000 if noted[2] else None)


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
