"""Describes the options of the bench, and the runs that follow from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from ingest.lab.described import described

KINDS = {
    "async_in_turn": "async pool (asyncpg), in turn",
    "async_plain": "async pool (asyncpg)",
    "threads": "threads, sync pool (psycopg)",
    "wrapped": "threads, asyncio.run (asyncpg)",
    "blocking": "sync pool (psycopg) in the event loop",
}
"""The title of each way to read, by the name of its function in `readers`."""

PAUSES = {
    "none": "no slow call",
    "blocking": "time.sleep in the handler",
    "awaited": "await asyncio.sleep",
    "thread": "await to_thread(time.sleep)",
}
"""The title of each way to make a slow call, by name."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of one run.

    Attributes:
        kind: way of reading.
        processes: server processes.
        pool: connections of each process.
        clients: concurrent clients.
        pause: way of making a slow call.
    """

    kind: str
    processes: int
    pool: int
    clients: int
    pause: str = "none"

    def __str__(self) -> str:
        reading = f"{self.kind}, {self.processes} process{'es' * (self.processes > 1)}, pool {self.pool}"
        return reading if self.pause == "none" else f"{reading}, {PAUSES[self.pause]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. The described fields are options of `ingest bench select`.

    Attributes:
        pools: numbers of connections of each process.
        processes: numbers of server processes.
    """

    pools: Sequence[int] = (10, 20, 50)
    processes: Sequence[int] = (1, 2)
    clients: Annotated[int, described(None, "Clients at a time.", ge=1, le=5_000)] = 2_000
    seconds: Annotated[float, described(None, "Length of each measurement.", ge=0.1, le=3600)] = 5.0
    orders: Annotated[int, described(None, "Orders in the table.", ge=1, le=10_000)] = 10_000
    blocking_every: Annotated[int, described(None, "One in this many requests has a slow call.", ge=1)] = 100
    blocking_clients: Annotated[
        int, described(None, "Clients at a time where slow calls are compared.", ge=1, le=5_000)
    ] = 200

    def reading(self) -> list[Setting]:
        """The runs that compare ways to read, with the ways of each setting next to each other."""
        return [
            Setting(kind, processes, pool, self.clients)
            for processes, pool, kind in product(self.processes, self.pools, KINDS)
        ]

    def pausing(self) -> list[Setting]:
        """The runs that compare slow calls in one process."""
        return [Setting("async_in_turn", 1, max(self.pools), self.blocking_clients, pause) for pause in PAUSES]
