"""Runs one setting after the other: servers, clients, and what each of them used; reports all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import msgspec

from ingest.bench.errors import BenchFailed
from ingest.bench.select.fill import fill
from ingest.bench.select.load import Load, Measured
from ingest.bench.select.pausing import PAUSES
from ingest.bench.select.readers import KINDS
from ingest.bench.select.server import Serve
from ingest.bench.stage import Stage, stage
from ingest.bench.trial import STALLED_AFTER, announce, run_trials
from ingest.lab.programs import Program
from ingest.lab.usage import cpu_seconds

_SEED = 1
_PAUSE_SECONDS = 0.1
_SPARE_CONNECTIONS = 20
# Besides the time that is measured, a run starts processes and warms up; the bench starts servers and fills a table.
_BEFORE_RUN = 3.0
_BEFORE_ALL = 8.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One run.

    Attributes:
        kind: of reading.
        processes: of the server.
        pool: connections of each process.
        clients: at a time.
        pause: how a slow call is made.
    """

    kind: str
    processes: int
    pool: int
    clients: int
    pause: str = "none"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared.

    Attributes:
        clients: at a time, reading.
        pools: connections of each process.
        processes: of the server.
        seconds: for which each run is measured.
        orders: rows in the table.
        blocking_every: requests; one of them has a slow call.
        blocking_clients: at a time, where slow calls are compared.
    """

    clients: int
    pools: Sequence[int]
    processes: Sequence[int]
    seconds: float
    orders: int
    blocking_every: int
    blocking_clients: int

    def reading(self) -> list[Setting]:
        """The runs that compare ways to read; the ways of each setting next to each other."""
        return [
            Setting(kind, processes, pool, self.clients)
            for processes, pool, kind in product(self.processes, self.pools, KINDS)
        ]

    def pausing(self) -> list[Setting]:
        """The runs that compare slow calls, in one process."""
        return [Setting("async_in_turn", 1, max(self.pools), self.blocking_clients, pause) for pause in PAUSES]

    def expected_seconds(self) -> float:
        """What the whole bench takes, about."""
        return _BEFORE_ALL + (len(self.reading()) + len(self.pausing())) * (self.seconds + _BEFORE_RUN)


@dataclass(frozen=True, slots=True)
class Found:
    """What one run has measured; CPU in cores used."""

    setting: Setting
    measured: Measured
    server_cores: float
    postgres_cores: float
    client_cores: float

    @property
    def per_second(self) -> float:
        """Correct answers per second."""
        return self.measured.answered / self.measured.seconds


def compare(plan: Plan) -> tuple[list[Found], list[Found]]:
    """Run all settings of both comparisons.

    Raises:
        LabFailed: a server or the clients ended, or nothing was answered.
    """
    reading, pausing = plan.reading(), plan.pausing()
    announce(f"{len(reading) + len(pausing)} runs", plan.expected_seconds())
    connections = max(plan.pools) * max(plan.processes) + _SPARE_CONNECTIONS
    with stage(durable=False, postgres_settings={"max_connections": str(connections)}) as on:
        on.migrate()
        order_ids = fill(on.postgres_dsn, plan.orders)
        found = run_trials(
            [*reading, *pausing],
            lambda setting: _run(on, plan, setting, order_ids),
            lambda setting, found: f"{_described(setting)}: {found.per_second:,.0f} requests/s",
        )
    return found[: len(reading)], found[len(reading) :]


def _run(on: Stage, plan: Plan, setting: Setting, order_ids: list[str]) -> Found:
    # All at once: they import much before they read what they are told.
    servers = [on.program("ingest.bench.select.server") for _ in range(setting.processes)]
    clients = on.program("ingest.bench.select.load")
    try:
        port = 0
        for server in servers:
            server.tell(_json(_serve(on, plan, setting, port)))
            port = int(server.read_line())
        clients.tell(_json(Load(port, setting.clients, plan.seconds, order_ids, _SEED)))
        if clients.read_line() != "measuring":
            raise clients.failed("does not measure")
        before = _cpu(on, servers)
        measured = msgspec.json.decode(clients.read_line(within=STALLED_AFTER + plan.seconds), type=Measured)
        after = _cpu(on, servers)
    finally:
        for program in [*servers, clients]:
            program.kill()
    if measured.answered == 0:
        raise BenchFailed(f"{_described(setting)}: no request was answered in {measured.seconds:.1f} s")
    server_cores, postgres_cores = ((b - a) / measured.seconds for a, b in zip(before, after, strict=True))
    return Found(setting, measured, server_cores, postgres_cores, measured.cpu_seconds / measured.seconds)


def _serve(on: Stage, plan: Plan, setting: Setting, port: int) -> Serve:
    return Serve(
        kind=setting.kind,
        dsn=on.postgres_dsn,
        pool=setting.pool,
        port=port,
        pause=setting.pause,
        pause_every=plan.blocking_every,
        pause_seconds=_PAUSE_SECONDS,
    )


def _cpu(on: Stage, servers: Sequence[Program]) -> tuple[float, float]:
    return sum(cpu_seconds(server.pid) for server in servers), on.cpu()[1] or 0.0


def _described(setting: Setting) -> str:
    reading = f"{setting.kind}, {setting.processes} process{'es' * (setting.processes > 1)}, pool {setting.pool}"
    return reading if setting.pause == "none" else f"{reading}, {PAUSES[setting.pause]}"


def _json(what: Serve | Load) -> str:
    return msgspec.json.encode(what).decode()
