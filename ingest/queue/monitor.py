"""What a queue looks like from outside: for /metrics, `ingest status` and the demo."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from redis.asyncio import Redis

from ingest.domain.outage import Outage
from ingest.queue.connection import NoGroup, QueueRefused, all_translated, translated
from ingest.queue.keys import Keys
from ingest.queue.outage_reports import read_report, report_key
from ingest.telemetry.metrics import QueueState


@dataclass(frozen=True, slots=True)
class CircuitState:
    """An open circuit.

    Attributes:
        error: what opened it.
        open_for: seconds.
    """

    error: str
    open_for: float


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One consumer of the group.

    Attributes:
        pending: entries it holds.
        idle: seconds since Redis last saw it ask for anything; None if it has not yet. Before 7.2, Redis sees only those that
            are given something.
        state: alive or stale by its heartbeat; unknown where it never had one, as other programs' consumers.
        stale_for: seconds since its heartbeat ended; None unless stale, and if it has left in order.
        circuit: why it asks the external API for nothing, if so.
    """

    name: str
    pending: int
    idle: float | None
    state: Literal["alive", "stale", "unknown"] = "unknown"
    stale_for: float | None = None
    circuit: CircuitState | None = None


@all_translated
class Monitor:
    """Asks Redis about one queue; changes nothing.

    Its methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(self, client: Redis, queue: str, group: str) -> None:
        self._client = client
        self._keys = Keys.of(queue, group)
        self._group = group

    async def state(self) -> QueueState:
        """The state of the queue, in one round trip (two where a group exists)."""
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.time()
                pipe.xlen(self._keys.stream)
                pipe.xrange(self._keys.stream, count=1)
                pipe.zcard(self._keys.retry)
                pipe.xlen(self._keys.dead)
                (seconds, micros), length, first, retries, dead = await pipe.execute()
            groups = await self._client.xinfo_groups(self._keys.stream) if await self._exists() else []
        oldest = int(first[0][0].partition(b"-")[0]) / 1000 if first else None
        ours = next((group for group in groups if group["name"] == self._group.encode()), None)
        pending = int(ours["pending"]) if ours else 0
        return QueueState(
            depth=_depth(length, pending, ours["lag"], len(groups)) if ours else length,
            pending=pending,
            oldest_age=max(0.0, seconds + micros / 1e6 - oldest) if oldest is not None else None,
            consumers=int(ours["consumers"]) if ours else 0,
            retries=retries,
            dead=dead,
        )

    async def consumers(self) -> list[ConsumerState]:
        """By name, all that have a heartbeat, and the group's others; what has neither is not there."""
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.time()
                pipe.hmget(self._keys.clock, "ahead", "noted_at", "latest")
                pipe.zrangebyscore(self._keys.alive, "-inf", "+inf", withscores=True)
                (seconds, micros), noted, beats = await pipe.execute()
        now = _queue_time(seconds + micros / 1e6, *(int(value or 0) / 1000 for value in noted))
        members = await self._members()
        for name, until in beats:
            known = members.get(name) or ConsumerState(_text(name), 0, None)
            members[name] = _judged(known, until / 1000, now)
        alive = [name for name, member in members.items() if member.state == "alive"]
        for name, circuit in (await self._circuits(alive)).items():
            members[name] = replace(members[name], circuit=CircuitState(circuit.error, max(0.0, now - circuit.since)))
        return sorted(members.values(), key=lambda member: member.name)

    async def _members(self) -> dict[bytes, ConsumerState]:
        """What Redis knows of the group's consumers; none where there is no group."""
        if not await self._exists():
            return {}
        try:
            with translated():
                reply: list[dict[str, Any]] = await self._client.xinfo_consumers(self._keys.stream, self._group)
        except NoGroup:
            return {}
        return {
            row["name"]: ConsumerState(_text(row["name"]), int(row["pending"]), row["idle"] / 1000) for row in reply
        }

    async def _circuits(self, names: list[bytes]) -> dict[bytes, Outage]:
        """The open circuits of these consumers."""
        if not names:
            return {}
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.get(report_key(self._keys, name.decode(errors="surrogateescape")))
                reports = [read_report(raw) for raw in await pipe.execute()]
        return {name: report for name, report in zip(names, reports, strict=True) if report is not None}

    async def _exists(self) -> bool:
        with translated():
            return bool(await self._client.exists(self._keys.stream))

    async def traps(self) -> list[str]:
        """What in the server's configuration can lose entries, a line each; none where it may not be asked."""
        try:
            with translated():
                server = await self._client.info()
        except QueueRefused:
            return []
        lines = []
        policy = server.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            lines.append(f"maxmemory-policy is {policy}: Redis may delete the queue itself; set it to noeviction")
        if not server.get("aof_enabled"):
            lines.append("appendonly is off: what Redis accepts since its last snapshot is lost when it restarts")
        return lines


def _queue_time(own: float, ahead: float, noted_at: float, latest: float) -> float:
    """The time of heartbeats, which does not go back when Redis' own does: see `_now.lua`."""
    return max(own + max(0.0, ahead - max(0.0, own - noted_at) / 100), latest)


def _judged(member: ConsumerState, until: float, now: float) -> ConsumerState:
    """The same, by a heartbeat that counts until a time; 0 where its owner has ended it."""
    if until > now:
        return replace(member, state="alive")
    return replace(member, state="stale", stale_for=now - until if until else None)


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _depth(length: int, pending: int, lag: int | None, groups: int) -> int | None:
    # Finished entries are deleted, so with one group all that is not pending is undelivered, and that is exact. With
    # several groups Redis' own count is asked, which is None when entries were deleted unread.
    return max(0, length - pending) if groups == 1 else lag
