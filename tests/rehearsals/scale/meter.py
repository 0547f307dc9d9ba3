"""Measures the time of a call in Redis, during which it does not serve other clients, by its own clock."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

from redis.asyncio import Redis

# For Redis' SLOWLOG, in ms.
LONG = 5.0
_OWN = {"config|resetstat", "slowlog|reset", "slowlog|get", "info"}
_SCRIPTS = {"evalsha", "eval"}
# Work that only depends on the machine, with about 1 ms on the reference machine.
_WORK = "local x = 0; for i = 1, 60000 do x = x + i % 7 end; return x"


@dataclass(slots=True)
class Costs:
    """The costs of calls by name.

    Attributes:
        samples: ms of each call, or of its most expensive command.
        long: number of commands that took longer than `LONG`.
    """

    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    long: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def medians(self) -> dict[str, float]:
        """The typical cost of a call in ms."""
        return {name: median(samples) for name, samples in self.samples.items()}

    def table(self) -> str:
        """All costs, beginning with the most expensive."""
        rows = sorted(self.samples.items(), key=lambda row: -median(row[1]))
        return "\n".join(
            f"{name:44} median {median(samples):7.3f} ms   most {max(samples):7.3f} ms   calls {len(samples):5}"
            f"   over {LONG:.0f} ms: {self.long[name]}"
            for name, samples in rows
        )


class Meter:
    """Records the cost of each call on a server that no other test uses."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._own = 0.0
        self.costs = Costs()

    @classmethod
    async def on(cls, redis: Redis) -> "Meter":
        """A meter of that server."""
        await redis.config_set("slowlog-max-len", 10_000)
        await redis.config_set("slowlog-log-slower-than", int(LONG * 1000))
        meter = cls(redis)
        for _ in range(9):
            async with meter.call("nothing"):
                await redis.ping()
        meter._own = meter.costs.medians()["nothing"]
        meter.costs = Costs()
        return meter

    @asynccontextmanager
    async def call(self, name: str) -> AsyncIterator[None]:
        """Record the commands of the block as a call of this name, with their mean if there are several."""
        await self._redis.slowlog_reset()
        await self._redis.config_resetstat()
        before = await self._processor_ms()
        yield
        spent = await self._processor_ms() - before
        stats = await self._redis.info("commandstats")
        calls = {
            command.removeprefix("cmdstat_"): facts["calls"] - facts["failed_calls"] for command, facts in stats.items()
        }
        # The commands of a script are counted once more under their own names.
        scripts = sum(calls.get(name, 0) for name in _SCRIPTS)
        commands = scripts or sum(count for command, count in calls.items() if command not in _OWN)
        self.costs.samples[name].append(max(0.0, spent - self._own) / commands)
        self.costs.long[name] += len(await self._redis.slowlog_get(10_000))

    async def _processor_ms(self) -> float:
        """CPU time of the thread that serves clients, which other processes do not affect, unlike wall time."""
        used = await self._redis.info("cpu")
        return 1000 * float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])


async def pace(redis: Redis) -> float:
    """The factor by which this machine is slower than the reference machine, at least 1."""
    meter = await Meter.on(redis)
    for _ in range(15):
        async with meter.call("work"):
            await redis.eval(_WORK, 0)
    return max(1.0, meter.costs.medians()["work"])
