"""A shared quota under test: the fake and the real one, with the same ways to let time pass and to lose it."""

from contextlib import AsyncExitStack
from typing import Protocol

from consumers import open_quota
from fakes.leases import MemoryQuota
from redis.asyncio import Redis

from ingest.domain.fetch.quota import QuotaLimits
from ingest.queue.consume.quota import FleetQuotaClient, quota_key
from ingest.upstream.quota.quota import QuotaLeases

_TIMES = ("learning", "next", "paused", "slow", "latest", "created")
_SECONDS = 4


class QuotaUnderTest(Protocol):
    """A quota that has already counted the reservations of the processes."""

    async def join(self, limits: QuotaLimits) -> QuotaLeases:
        """The leases of a new process. All processes of a test share the same limits."""

    async def passes(self, seconds: int) -> None:
        """Let time pass."""

    async def pause(self, seconds: float) -> None:
        """The API has requested a pause from all processes."""

    async def lose(self) -> None:
        """The server loses its state."""


class MemoryQuotaUnderTest:
    """The fake, whose time passes only here."""

    def __init__(self) -> None:
        self._now = 1_000.0
        self._quota: MemoryQuota | None = None
        self._processes = 0

    async def join(self, limits: QuotaLimits) -> QuotaLeases:
        self._quota = self._quota or MemoryQuota(limits, lambda: self._now)
        self._processes += 1
        return self._quota.member(f"process-{self._processes}")

    async def passes(self, seconds: int) -> None:
        self._now += seconds

    async def pause(self, seconds: float) -> None:
        assert self._quota is not None
        self._quota.paused_until = self._now + seconds

    async def lose(self) -> None:
        assert self._quota is not None
        self._quota.lose()


class RedisQuotaUnderTest:
    """The real implementation. The test moves the times in its state to let time pass."""

    def __init__(self, redis: Redis, url: str, name: str, stack: AsyncExitStack) -> None:
        self._redis = redis
        self._url = url
        self._name = name
        self._key = quota_key(name)
        self._stack = stack
        self._clients: list[FleetQuotaClient] = []

    async def join(self, limits: QuotaLimits) -> QuotaLeases:
        if not self._clients:
            await self._redis.hset(self._key, mapping={"created": 1, "learning": 1})
        client = await self._stack.enter_async_context(open_quota(self._url, self._name, limits))
        self._clients.append(client)
        return client

    async def passes(self, seconds: int) -> None:
        state = {name.decode(): value.decode() for name, value in (await self._redis.hgetall(self._key)).items()}
        moved = {name: float(state[name]) - seconds * 1000 for name in _TIMES if name in state and name != "created"}
        slots = {name: state.pop(name) for name in list(state) if name.startswith("seconds")}
        for text in slots.values():
            epoch, *sums = text.split()
            moved[f"seconds{(int(epoch) - seconds) % _SECONDS}"] = " ".join([str(int(epoch) - seconds), *sums])
        if "moved_from" in state:
            moved["moved_from"] = int(state["moved_from"]) - seconds
        if slots:
            await self._redis.hdel(self._key, *slots)
        await self._redis.hset(self._key, mapping=moved)
        for client in self._clients:
            client._contribution = _moved(client._contribution, seconds)

    async def pause(self, seconds: float) -> None:
        await self._clients[0].pause(seconds)

    async def lose(self) -> None:
        await self._redis.delete(self._key)


def _moved(contribution: str | bytes, seconds: int) -> str:
    text = contribution.decode() if isinstance(contribution, bytes) else contribution
    created, _, numbers = text.partition(":")
    if not numbers:
        return text
    epoch, *sums = numbers.split()
    return f"{created}:{' '.join([str(int(epoch) - seconds), *sums])}"
