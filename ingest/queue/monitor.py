"""What a queue looks like from outside: for /metrics, `ingest status` and the demo."""

from dataclasses import dataclass

from redis.asyncio import Redis

from ingest.queue.connection import NoGroup, QueueRefused, all_translated, translated
from ingest.queue.keys import Keys
from ingest.telemetry.metrics import QueueState


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One consumer of the group.

    Attributes:
        pending: entries it holds.
        idle: seconds since it last asked for anything.
    """

    name: str
    pending: int
    idle: float


@all_translated
class Monitor:
    """Asks Redis about one queue; changes nothing.

    Its methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(self, client: Redis, queue: str, group: str) -> None:
        self._client = client
        self._keys = Keys.of(queue)
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
            oldest_age=max(0.0, seconds + micros / 1e6 - oldest) if oldest is not None else 0.0,
            consumers=int(ours["consumers"]) if ours else 0,
            retries=retries,
            dead=dead,
        )

    async def consumers(self) -> list[ConsumerState]:
        """The group's consumers by name; none where there is no group."""
        if not await self._exists():
            return []
        try:
            with translated():
                reply = await self._client.xinfo_consumers(self._keys.stream, self._group)
        except NoGroup:
            return []
        states = (
            ConsumerState(row["name"].decode(errors="replace"), int(row["pending"]), row["idle"] / 1000)
            for row in reply
        )
        return sorted(states, key=lambda state: state.name)

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


def _depth(length: int, pending: int, lag: int | None, groups: int) -> int | None:
    # Finished entries are deleted, so with one group all that is not pending is undelivered, and that is exact. With
    # several groups Redis' own count is asked, which is None when entries were deleted unread.
    return max(0, length - pending) if groups == 1 else lag
