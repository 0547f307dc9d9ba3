"""Measures what Redis does for a call: how long it answered nobody else, by its own clock."""

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
# Work that depends on nothing but the machine: about 1 ms on the one that the bounds were made on.
_WORK = "local x = 0; for i = 1, 60000 do x = x + i % 7 end; return x"


@dataclass(slots=True)
class Costs:
    """What calls have cost, by their names.

    Attributes:
        samples: ms of each; where a call is several commands, of the dearest.
        long: how many single commands took longer than `LONG`.
    """

    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    long: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def medians(self) -> dict[str, float]:
        """What a call typically costs, in ms."""
        return {name: median(samples) for name, samples in self.samples.items()}

    def table(self) -> str:
        """All of it, for people; the dearest first."""
        rows = sorted(self.samples.items(), key=lambda row: -median(row[1]))
        return "\n".join(
            f"{name:44} median {median(samples):7.3f} ms   most {max(samples):7.3f} ms   calls {len(samples):5}"
            f"   over {LONG:.0f} ms: {self.long[name]}"
            for name, samples in rows
        )


class Meter:
    """Notes what each call costs the server, which has to be there for the test alone."""

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
        """What the block asks of the server is a call of that name; of several alike, their mean is noted."""
        await self._redis.slowlog_reset()
        await self._redis.config_resetstat()
        before = await self._processor_ms()
        yield
        spent = await self._processor_ms() - before
        stats = await self._redis.info("commandstats")
        calls = {
            command.removeprefix("cmdstat_"): facts["calls"] - facts["failed_calls"] for command, facts in stats.items()
        }
        # What a script calls is counted once more under its own name.
        scripts = sum(calls.get(name, 0) for name in _SCRIPTS)
        commands = scripts or sum(count for command, count in calls.items() if command not in _OWN)
        self.costs.samples[name].append(max(0.0, spent - self._own) / commands)
        self.costs.long[name] += len(await self._redis.slowlog_get(10_000))

    async def _processor_ms(self) -> float:
        """What the thread that answers has used: unlike a clock's time, it does not count what others take of the machine."""
        used = await self._redis.info("cpu")
        return 1000 * float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])


async def pace(redis: Redis) -> float:
    """How many times longer this machine takes than the one that the bounds were made on; at least 1."""
    meter = await Meter.on(redis)
    for _ in range(15):
        async with meter.call("work"):
            await redis.eval(_WORK, 0)
    return max(1.0, meter.costs.medians()["work"])
