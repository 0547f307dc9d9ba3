"""Replays all dead letters by the command, kills it, resumes its job, and counts the outcome of each dead letter."""

import asyncio
import json
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from support import eventually

from ingest.bench.stage import Stage
from ingest.domain.source_name import queue_of
from ingest.lab.commands import Command
from ingest.queue.layout.keys import Keys


@dataclass(frozen=True, slots=True)
class Replayed:
    """The results.

    Attributes:
        per_second: dead letters replayed per second while a command worked, from its first change to its end.
        search_seconds: from the start of the first command to its first change. It counts all dead letters by reason.
        killed_at: dead letters that had been replayed when the command was killed.
        done: the sum of all jobs.
        left: dead letters that are still there.
        doubled: orders that are queued or stored more than once, or more often than they were dead-lettered.
        lost: orders that are neither queued nor stored.
    """

    per_second: float
    search_seconds: float
    killed_at: int
    done: int
    left: int
    doubled: int
    lost: int


class BulkReplay:
    """One run on a stage whose sources have dead letters `dead-1` to `dead-N`, while no worker runs.

    Args:
        on: the servers and commands.
        redis: a client.
        sources: names of the sources.
    """

    def __init__(self, on: Stage, redis: Redis, sources: Sequence[str]) -> None:
        self._on = on
        self._redis = redis
        self._keys = {name: Keys.of(queue_of(on.stream, name)) for name in sources}
        self._chosen = [option for name in sources for option in ("--source", name)]

    async def run(self) -> Replayed:
        """Replay, kill half-way, resume, replay the rest, and count."""
        before = await self._dead()
        total, busy = sum(before.values()), 0.0
        started = time.monotonic()
        command = self._replay()
        began = await self._begins(total)
        search_seconds = began - started
        await eventually(lambda: self._is_below(total // 2), within=600, every=0.05)
        command.signal(signal.SIGKILL)
        await asyncio.to_thread(command.has_ended, 60)
        busy += time.monotonic() - began
        killed_at = total - sum((await self._dead()).values())
        for job in self._jobs():
            if job["state"] != "done":
                # Its lease has to expire, or a process of the API takes it.
                await eventually(lambda number=job["id"]: self._resumed(number), within=60, every=1)
        moved = total - sum((await self._dead()).values())
        rest = self._replay()
        began = await self._begins(total - moved)
        await asyncio.to_thread(rest.finish)
        busy += time.monotonic() - began
        resumed = moved - killed_at
        jobs = self._jobs()
        done = sum(int(job["done"]) for job in jobs)
        lost, doubled = await self._count(before)
        return Replayed(
            (total - resumed) / busy, search_seconds, killed_at, done, sum((await self._dead()).values()), doubled, lost
        )

    def _replay(self) -> Command:
        return self._on.commands.start("dead", "replay", "--all", "--yes", *self._chosen)

    async def _begins(self, dead: int) -> float:
        """The monotonic time at which the first of the dead letters is replayed."""
        await eventually(lambda: self._is_below(dead - 1), within=600, every=0.01)
        return time.monotonic()

    async def _is_below(self, count: int) -> bool:
        return sum((await self._dead()).values()) <= count

    async def _resumed(self, number: int) -> bool:
        """Resume a job, unless another process runs it, and return whether it is done."""
        command = self._on.commands.start("job", "resume", str(number))
        await asyncio.to_thread(command.has_ended, 120)
        return any(job["id"] == number and job["state"] == "done" for job in self._jobs())

    def _jobs(self) -> list[dict[str, Any]]:
        command = self._on.commands.start("job", "list", "--json", *self._chosen)
        command.finish()
        return [json.loads(line) for line in command.log.read_text().splitlines() if line.startswith("{")]

    async def _dead(self) -> dict[str, int]:
        return {name: int(await self._redis.xlen(keys.dead)) for name, keys in self._keys.items()}

    async def _count(self, before: dict[str, int]) -> tuple[int, int]:
        """Orders that are lost, and entries and rows that are too many."""
        lost = doubled = 0
        for name, keys in self._keys.items():
            found = await self._queued(keys)
            for (order_id,) in self._on.sql(
                f"SELECT order_id FROM orders WHERE source = '{name}' AND order_id LIKE 'dead-%'"
            ):
                found[order_id] = found.get(order_id, 0) + 1
            lost += before[name] - len(found)
            doubled += sum(count - 1 for count in found.values())
        return lost, doubled

    async def _queued(self, keys: Keys) -> dict[str, int]:
        found: dict[str, int] = {}
        last = "-"
        while page := await self._redis.xrange(keys.express, min=last, count=10_000):
            for _, fields in page:
                order_id = fields[b"order_id"].decode()
                found[order_id] = found.get(order_id, 0) + 1
            last = f"({page[-1][0].decode()}"
        return found
