"""How each fault is done, and undone."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TypeVar

import psutil
from crash.power import cut_unsynced, set_clock
from proxy import Proxy
from redis.asyncio import Redis
from redis.exceptions import RedisError
from releases import kept
from support import eventually

from chaos.disk import fill, free
from chaos.plan import LAST_RELEASE, OF_ONE_SHOP, Fault, Kind
from chaos.producer import Orders
from chaos.redis_side import Place
from chaos.stage import GROUP, THIS_RELEASE, Shop, Stage, WorkerCommand
from ingest.lab.servers import PostgresServer, ValkeyServer
from ingest.queue.layout.keys import LaneKeys
from ingest.queue.redis.connection import control_client

T = TypeVar("T")
# While servers are unavailable, a stop takes the grace period and the supervisor's margin (5 + 12 s), or longer.
STOP_SECONDS = 40.0
_SLOW = 0.15
# In long runs the API may be down, and nothing pending, for a minute.
_UNTIL_HELD = 120.0
_WIDE_AT_ONCE = 4
# Seconds by which a wrong clock is ahead.
_CLOCKS = (-3_600, -20, -2, 2, 20, 3_600)
_FOREIGN_KEY = "another-program"
_WIDTHS = (5_000, 20_000)
_NO_RATES = {
    "error_rate": 0.0,
    "unavailable_rate": 0.0,
    "reset_rate": 0.0,
    "truncate_rate": 0.0,
    "hang_rate": 0.0,
}
_PLAUSIBLE: list[dict[str, object]] = [
    {"down": "empty"},
    _NO_RATES | {"error_rate": 1.0, "error_status": 400},
    _NO_RATES | {"error_rate": 1.0, "error_status": 422},
    _NO_RATES | {"wrong_type_rate": 1.0},
]


class Faults:
    """Applies faults to a stage.

    Args:
        stage: the stage.
        orders: records entries that foreign producers have added, for each shop.
        say: called with a description of each event.
    """

    def __init__(self, stage: Stage, orders: Mapping[str, Orders], say: Callable[[str], None]) -> None:
        self._stage = stage
        self._orders = orders
        self._say = say
        postgres, to_postgres = stage.postgres, stage.postgres_proxy
        self._ways: dict[Kind, Callable[[Fault], Awaitable[str]]] = {
            Kind.KILL_PROCESS: self._kill_process,
            Kind.KILL_COMMAND: self._kill_command,
            Kind.KILL_SUPERVISOR: self._kill_supervisor,
            Kind.REPLACE_COMMAND: self._replace_command,
            Kind.LAST_RELEASE: self._use_last_release,
            Kind.FREEZE_PROCESS: self._freeze_process,
            Kind.WORKER_CLOCK: lambda fault: self._set_clock(_pick(stage.workers, fault).log, fault),
            Kind.REDIS_TERM: lambda fault: self._at_primary(
                fault, lambda at: self._restart(at.server, at.server.stop, fault)
            ),
            Kind.REDIS_KILL: lambda fault: self._at_primary(
                fault, lambda at: self._restart(at.server, at.server.kill, fault)
            ),
            Kind.REDIS_POWER: lambda fault: self._at_primary(fault, lambda at: self._lose_power(at.server, fault)),
            Kind.REDIS_FULL: lambda fault: self._at_primary(
                fault, lambda at: self._fill(at.server, at.server.directory, fault)
            ),
            Kind.REDIS_CLOCK: lambda fault: self._at_primary(
                fault, lambda at: self._set_clock(at.server.directory, fault)
            ),
            Kind.REDIS_STALL: lambda fault: self._at_primary(fault, lambda at: self._stall(at.server, fault)),
            Kind.REDIS_CUT: lambda fault: self._at_primary(fault, lambda at: self._cut(at.proxy)),
            Kind.REDIS_HALF_OPEN: lambda fault: self._at_primary(fault, lambda at: self._half_open(at.proxy, fault)),
            Kind.REDIS_SLOW: lambda fault: self._at_primary(fault, lambda at: self._slow(at.proxy, fault)),
            **stage.redis.ways(),
            Kind.POSTGRES_FAST: lambda fault: self._restart(postgres, lambda: postgres.stop("fast"), fault),
            Kind.POSTGRES_IMMEDIATE: lambda fault: self._restart(postgres, lambda: postgres.stop("immediate"), fault),
            Kind.POSTGRES_FULL: lambda fault: self._fill(postgres, postgres.directory.parent, fault),
            Kind.POSTGRES_STALL: lambda fault: self._stall(postgres, fault),
            Kind.POSTGRES_CUT: lambda _: self._cut(to_postgres),
            Kind.POSTGRES_HALF_OPEN: lambda fault: self._half_open(to_postgres, fault),
            Kind.POSTGRES_SLOW: lambda fault: self._slow(to_postgres, fault),
            Kind.API_REFUSES: lambda fault: self._refuse(self._shop(fault).proxy, fault),
            Kind.API_500: lambda fault: self._behave(fault, error_rate=1.0, **_without("error_rate")),
            Kind.API_503: lambda fault: self._behave(fault, down="503"),
            Kind.API_401: lambda fault: self._behave(fault, token="changed"),
            Kind.API_404: lambda fault: self._behave(fault, down="404"),
            Kind.API_PAGE: lambda fault: self._behave(fault, down="page"),
            Kind.API_PLAUSIBLE: lambda fault: self._behave(fault, **Random(fault.choice).choice(_PLAUSIBLE)),
            Kind.API_HANGS: lambda fault: self._behave(fault, hang_rate=1.0, **_without("hang_rate")),
            Kind.API_THROTTLES: lambda fault: self._behave(fault, rate_limit=20.0),
            Kind.API_CUT: lambda fault: self._cut(self._shop(fault).proxy),
            Kind.API_HALF_OPEN: lambda fault: self._half_open(self._shop(fault).proxy, fault),
            Kind.API_SLOW: lambda fault: self._slow(self._shop(fault).proxy, fault),
            Kind.FOREIGN_DELETION: self._delete_consumer,
            Kind.FOREIGN_WIDE: self._add_wide,
            Kind.FOREIGN_COMMANDS: lambda fault: eventually(lambda: self._send_commands(fault), within=_UNTIL_HELD),
        }

    async def strike(self, fault: Fault) -> None:
        """Apply one fault, undo it, and return."""
        lasting = f" for {fault.seconds:.1f} s" if fault.seconds else ""
        of_shop = f" ({self._shop(fault).name})" if fault.kind in OF_ONE_SHOP and len(self._stage.shops) > 1 else ""
        self._say(f"{fault.kind}{of_shop}{lasting}")
        result = await self._ways[fault.kind](fault)
        if fault.kind.name.startswith("REDIS"):
            await self._stage.heal()
        if result:
            self._say(f"  {fault.kind}: {result}")

    # -- workers --------------------------------------------------------------------------------------------

    async def _kill_process(self, fault: Fault) -> str:
        victim = _pick(await eventually(self._processes, every=0.1), fault)
        with suppress(psutil.NoSuchProcess):
            victim.kill()
        return f"process {victim.pid}"

    async def _processes(self) -> list[psutil.Process]:
        """The worker processes of all commands that should be running."""
        return [child for command in self._stage.workers for child in command.children()]

    async def _freeze_process(self, fault: Fault) -> str:
        victim = _pick(await eventually(self._processes, every=0.1), fault)
        with _frozen([victim]):
            await asyncio.sleep(fault.seconds)
        return f"process {victim.pid} goes on" if victim.is_running() else f"process {victim.pid} died meanwhile"

    async def _kill_command(self, fault: Fault) -> str:
        command = self._choose_command(fault)
        await asyncio.to_thread(command.kill)
        await asyncio.sleep(fault.seconds)
        return f"{command.log.stem}; {self._stage.start_worker().log.stem} takes its place"

    async def _kill_supervisor(self, fault: Fault) -> str:
        command = self._choose_command(fault)
        with suppress(psutil.NoSuchProcess):
            psutil.Process(command.pid).kill()
        other = self._stage.start_worker()
        ended = await asyncio.to_thread(self._stage.await_end, command, STOP_SECONDS)
        return f"{command.log.stem} ended: {ended}; {other.log.stem} takes its place"

    async def _use_last_release(self, fault: Fault) -> str:
        release = await asyncio.to_thread(kept.unpack, self._stage.home / LAST_RELEASE)
        there = await self._replace(self._choose_command(fault), release)
        await asyncio.sleep(fault.seconds)
        command = self._stage.workers.pop()
        return f"{there}, and {await self._replace(command)}"

    async def _replace_command(self, fault: Fault) -> str:
        return await self._replace(self._choose_command(fault))

    async def _replace(self, command: WorkerCommand, release: Mapping[str, str] = THIS_RELEASE) -> str:
        other = self._stage.start_worker(release)
        command.ask_to_stop()
        ended = await asyncio.to_thread(self._stage.await_end, command, STOP_SECONDS)
        return f"{command.log.stem} ended: {ended}; {other.log.stem} takes its place"

    def _choose_command(self, fault: Fault) -> WorkerCommand:
        """Remove a command from the workers that should be running, and return it."""
        command = _pick(self._stage.workers, fault)
        self._stage.workers.remove(command)
        return command

    # -- servers --------------------------------------------------------------------------------------------

    async def _restart(self, server: ValkeyServer | PostgresServer, end: Callable[[], None], fault: Fault) -> str:
        await asyncio.to_thread(end)
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(server.start)
        return "answers again"

    async def _lose_power(self, server: ValkeyServer, fault: Fault) -> str:
        await asyncio.to_thread(server.kill)
        lost = await asyncio.to_thread(cut_unsynced, server)
        self._stage.written.read(self._stage.redis.servers)  # before the file grows again
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(server.start)
        return f"{lost} bytes were not on the disk"

    async def _fill(self, server: ValkeyServer | PostgresServer, folder: Path, fault: Fault) -> str:
        await asyncio.to_thread(fill, folder)
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(free, folder)
        if server.is_running():
            return "has space again"
        # Redis ends when it cannot write its file, and PostgreSQL when it cannot recover.
        self._stage.written.read(self._stage.redis.servers)
        await asyncio.to_thread(server.start)
        return "ended, and answers again"

    async def _set_clock(self, of: Path, fault: Fault) -> str:
        file = of.with_suffix(".clock")
        ahead = Random(fault.choice).choice(_CLOCKS)
        set_clock(file, ahead)
        await asyncio.sleep(fault.seconds)
        set_clock(file, 0)
        return f"was ahead by {ahead} s"

    async def _stall(self, server: ValkeyServer | PostgresServer, fault: Fault) -> str:
        parent = psutil.Process(server.pid)
        parent.suspend()  # first, so that it makes no more children
        with _frozen([parent, *parent.children(recursive=True)]):
            await asyncio.sleep(fault.seconds)
        return "goes on"

    async def _at_primary(self, fault: Fault, way: Callable[[Place], Awaitable[str]]) -> str:
        """Strike one of the servers of Redis that accept writes."""
        return await way(_pick(await self._stage.redis.primaries(), fault))

    # -- foreign clients ------------------------------------------------------------------------------------

    async def _delete_consumer(self, fault: Fault) -> str:
        name, entries = await eventually(lambda: self._deleted(fault), within=_UNTIL_HELD)
        return f"{name.decode()}, which held {entries}"

    async def _deleted(self, fault: Fault) -> tuple[bytes, int] | None:
        """The deleted live consumer with the number of its entries, or None if all consumers are empty."""
        keys = _pick(self._shop(fault).partitions, fault)
        with suppress(RedisError, OSError):
            async with control_client(self._stage.redis.straight_url) as redis:
                alive = set(await redis.zrangebyscore(keys.alive, time.time() * 1000, "+inf"))
                consumers = await redis.xinfo_consumers(keys.stream, GROUP)
                holding = [row["name"] for row in consumers if row["pending"] and row["name"] in alive]
                if not holding:
                    return None
                name = _pick(holding, fault)
                entries = sum([int(await redis.xgroup_delconsumer(lane.stream, GROUP, name)) for lane in keys.lanes])
                return (name, entries) if entries else None
        return None

    async def _add_wide(self, fault: Fault) -> str:
        """Entries with a whole document in fields. Every other entry names no order or an impossible one."""
        random, shop = Random(fault.choice), self._shop(fault)
        widths = []
        for number in range(_WIDE_AT_ONCE):
            widths.append(random.randint(*_WIDTHS))
            order = random.choice([{}, {"order_id": "no order\nID"}])
            if number % 2:
                name = self._orders[shop.name].next_wide()
                await self._orders[shop.name].expect_usual(name)
                order = {"order_id": name}
            rest = {f"field-{field}": "x" for field in range(widths[-1])}
            await self._add(
                shop, random.choice(random.choice(shop.partitions).lanes), random.choice([order | rest, rest | order])
            )
        return f"of {', '.join(f'{width:,}' for width in widths)} fields"

    async def _add(self, shop: Shop, lane: LaneKeys, fields: dict[str, str]) -> None:
        name, orders = fields.get("order_id", ""), self._orders[shop.name]
        try:
            async with control_client(self._stage.redis.straight_url) as redis:
                await redis.xadd(lane.stream, fields)  # type: ignore[arg-type]
        except (RedisError, OSError):
            orders.note_foreign(name, certain=False)
        else:
            orders.note_foreign(name, certain=True)

    async def _send_commands(self, fault: Fault) -> str | None:
        """Use keys of another program, and what all programs share. None if Redis does not respond."""
        with suppress(RedisError, OSError):
            async with control_client(self._stage.redis.straight_url) as redis:
                await redis.xadd(_FOREIGN_KEY, {"order_id": "1"})
                await redis.xtrim(_FOREIGN_KEY, maxlen=0)
                await redis.delete(_FOREIGN_KEY)
            server = _pick(await self._stage.redis.primaries(), fault).server
            async with Redis.from_url(server.url) as redis:
                await redis.config_set("slowlog-max-len", 64)
                await redis.config_resetstat()
                await redis.script_flush()
                killed = await redis.client_kill_filter(_type="normal", skipme=True)
            return f"{killed} connections at port {server.port}"
        return None

    # -- the network ----------------------------------------------------------------------------------------

    async def _cut(self, proxy: Proxy) -> str:
        return f"{await asyncio.to_thread(proxy.cut)} connections"

    async def _half_open(self, proxy: Proxy, fault: Fault) -> str:
        await asyncio.to_thread(proxy.freeze)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            proxy.thaw()
        return f"{proxy.connections} connections go on"

    async def _slow(self, proxy: Proxy, fault: Fault) -> str:
        proxy.delay(_SLOW)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            proxy.delay(0.0)
        return "over"

    async def _refuse(self, proxy: Proxy, fault: Fault) -> str:
        await asyncio.to_thread(proxy.refuse)
        await asyncio.to_thread(proxy.cut)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            proxy.accept()
        return "over"

    # -- the API --------------------------------------------------------------------------------------------

    async def _behave(self, fault: Fault, **changes: object) -> str:
        api = self._shop(fault).api
        await api.behave(**changes)
        await asyncio.sleep(fault.seconds)
        await api.behave()
        return "over"

    def _shop(self, fault: Fault) -> Shop:
        """The shop that the fault strikes, while the others work."""
        return _pick(self._stage.shops, fault)


def _pick(victims: Sequence[T], fault: Fault) -> T:
    return victims[int(fault.choice * len(victims))]


@contextmanager
def _frozen(processes: Iterable[psutil.Process]) -> Iterator[None]:
    """Processes that may die during the fault."""
    processes = list(processes)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def _without(rate: str) -> dict[str, float]:
    return {name: share for name, share in _NO_RATES.items() if name != rate}
