"""The sequence of a run: start, apply faults, lift them, wait until the queue is empty, check."""

import asyncio
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from redis.exceptions import RedisError
from support import eventually

from chaos import account, check
from chaos.faults import STOP_SECONDS, Faults
from chaos.left import left
from chaos.plan import Fault, Kind, RedisKind, kinds_with, plan
from chaos.producer import Announcer
from chaos.report import Report
from chaos.stage import FEATURES, Stage, open_stage
from ingest.domain.deliveries.accepted import Durability
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import control_client

_COMMANDS = 2
# Beyond the longest retry delay of five minutes, remaining orders are stuck.
_DRAIN_SECONDS = 420.0
_LOOK_EVERY = 0.25
_TELL_EVERY = 5.0
_FOLLOW_EVERY = 0.2


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    Attributes:
        seconds: duration of the faults.
        rate: orders announced per second, in all sources.
        processes: worker processes of all commands.
        sources: sources of the orders.
        redis_server: the program to use for Redis, or None for the embedded one.
        keep: whether data and logs are always kept.
        redis: how Redis runs.
        durability: of accepted orders.
        partitions: of each queue.
        features: the features of `chaos.stage.FEATURES` that the workers use.
        only: the kinds of faults.
    """

    seed: int
    seconds: float
    rate: float
    processes: int
    sources: int
    redis_server: Path | None
    keep: bool
    redis: RedisKind = RedisKind.STANDALONE
    durability: Durability = Durability.MEMORY
    partitions: int = 1
    features: tuple[str, ...] = ()
    only: tuple[Kind, ...] = tuple(Kind)


def run(options: Options) -> Report:
    """Perform a run. Data and logs are kept if the run is not sound."""
    home = Path(tempfile.gettempdir()) / f"ingest-chaos-{options.seed}-{secrets.token_hex(3)}"
    keep = True
    try:
        processes = max(1, options.processes // _COMMANDS)
        with open_stage(home, processes, options.redis_server, options.redis) as stage:
            stage.prepare(options.seed, options.sources, options.partitions, options.features)
            report = asyncio.run(_Run(stage, options).play())
        keep = options.keep or not report.is_sound
    except (KeyboardInterrupt, SystemExit):
        keep = options.keep
        raise
    finally:
        if keep:
            sys.stderr.write(f"logs and data are in {home}\n")
        else:
            shutil.rmtree(home, ignore_errors=True)
    return replace(report, logs=str(home / "logs")) if keep else report


class _Run:
    def __init__(self, stage: Stage, options: Options) -> None:
        self._stage = stage
        self._options = options
        self._started = time.monotonic()
        self._struck: Counter[Kind] = Counter()
        self._accidents: list[str] = []
        self._stop_announcing = asyncio.Event()

    async def play(self) -> Report:
        stage, options = self._stage, self._options
        await check.prepare(stage.postgres.dsn)
        await stage.redis.attach()
        async with AsyncExitStack() as stack:
            self._redis = await stack.enter_async_context(control_client(stage.redis.straight_url))
            announcers = {}
            for shop in stage.shops:
                await stack.enter_async_context(shop.api)
                await shop.api.behave()
                rate = options.rate / len(stage.shops)
                announcer = Announcer(
                    stage.redis.url, shop, rate, options.seed, options.durability, stage.history, self._say
                )
                announcer.in_lists = "bulk" in options.features
                announcers[shop.name] = announcer
            self._orders = {name: announcer.orders for name, announcer in announcers.items()}
            for _ in range(_COMMANDS):
                stage.start_worker()
            self._started = time.monotonic()
            self._say(f"seed {options.seed}: {options.seconds:.0f} s of faults, {options.rate:g} orders/s")
            async with asyncio.TaskGroup() as parts:
                observers = (self._watch_commands(), self._follow_servers(), self._tell())
                watching = [parts.create_task(observer) for observer in observers]
                announcing = [
                    parts.create_task(announcer.run(self._stop_announcing)) for announcer in announcers.values()
                ]
                await self._strike()
                self._say("all faults are lifted")
                lifted = time.monotonic()
                self._stop_announcing.set()
                await asyncio.wait(announcing)
                drained = await self._drained()
                drained_after = time.monotonic() - lifted if drained else None
                for task in watching:
                    task.cancel()
            await self._stop_workers()
            self._say("looking for every order")
            await stage.heal()
            findings = await check.find(stage, self._orders, options.durability)
            await stage.history.note_end(stage)
            rate = FEATURES["quota"]["rate"] if "quota" in options.features else None
        return Report(
            options.seed,
            lifted - self._started,
            self._struck,
            drained_after,
            dict(stage.exits),
            self._accidents,
            findings,
            _account(stage.history.folder, rate),
        )

    async def _strike(self) -> None:
        """Let all lanes go their way to their end."""
        faults = Faults(self._stage, self._orders, self._say)
        async with asyncio.TaskGroup() as lanes:
            options = self._options
            kinds = {*kinds_with(options.redis, options.features)} & {*options.only}
            for lane in plan(options.seed, options.seconds, kinds).values():
                lanes.create_task(self._go(faults, lane))
            await asyncio.sleep(self._options.seconds)

    async def _go(self, faults: Faults, lane: Sequence[Fault]) -> None:
        for fault in lane:
            # A late lane does not skip faults, because each kind has to occur.
            await asyncio.sleep(max(0.0, self._started + fault.at - time.monotonic()))
            began = time.time()
            await faults.strike(fault)
            self._stage.history.note("faults", kind=fault.kind.name, at=began, until=time.time())
            self._struck[fault.kind] += 1

    async def _watch_commands(self) -> None:
        """Record worker commands that end without a request."""
        while True:
            for command in list(self._stage.workers):
                if command.has_ended():
                    with suppress(ValueError):  # chosen as a victim in this moment
                        self._stage.workers.remove(command)
                    self._accidents.append(f"{command.log.stem} ended unexpectedly, exit code {command.exit_code}")
                    self._say(f"ACCIDENT: {self._accidents[-1]}")
                    self._stage.start_worker()
            await asyncio.sleep(_LOOK_EVERY)

    async def _follow_servers(self) -> None:
        """Read each file that a server writes before the server removes it."""
        while True:
            self._stage.written.read(self._stage.redis.servers)
            await asyncio.sleep(_FOLLOW_EVERY)

    async def _stop_workers(self) -> None:
        for command in self._stage.workers:
            await eventually(lambda command=command: command.children() or command.has_ended())
            command.ask_to_stop()
        for command in self._stage.workers:
            ended = await asyncio.to_thread(self._stage.await_end, command, STOP_SECONDS)
            if ended != "exit code 0":
                self._accidents.append(f"{command.log.stem}, asked to stop when all was quiet: {ended}")
        self._stage.workers.clear()

    # -- the queue ------------------------------------------------------------------------------------------

    async def _drained(self) -> bool:
        """Wait until the queue is empty, or return False and log the remaining queue if that takes too long."""
        until = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < until:
            if await self._queued() == (0, 0):
                return True
            await asyncio.sleep(_LOOK_EVERY)
        found = "\n".join([await left(self._redis, keys) for shop in self._stage.shops for keys in shop.partitions])
        (self._stage.logs / "left.txt").write_text(f"{found}\n")
        self._say(f"NOT DRAINED: {found[:4000]}")
        return False

    async def _queued(self) -> tuple[int, int] | None:
        """Entries in the lanes and the retry sets, or None while Redis does not respond."""
        for _ in range(2):  # a connection from before a restart fails once
            with suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(1):
                    counts = [await self._queued_in(keys) for shop in self._stage.shops for keys in shop.partitions]
                return sum(entries for entries, _ in counts), sum(retries for _, retries in counts)
        return None

    async def _queued_in(self, keys: Keys) -> tuple[int, int]:
        """The same of one partition at one moment, so that a moving order is not missed."""
        async with self._redis.pipeline() as pipe:
            pipe.zcard(keys.retry)
            for lane in keys.lanes:
                pipe.xlen(lane.stream)
            retries, *entries = await pipe.execute()
        return sum(entries), retries

    # -- observations ---------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_TELL_EVERY)
            queued = await self._queued()
            state = (
                "Redis does not answer"
                if queued is None
                else f"{queued[0]:,} in the stream, {queued[1]:,} to be retried"
            )
            accepted = sum(len(orders.accepted) for orders in self._orders.values())
            unconfirmed = sum(len(orders.unconfirmed) for orders in self._orders.values())
            self._say(f"    {accepted:,} accepted, {unconfirmed:,} unconfirmed, {state}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self._started:7.1f} s  {text}\n")
        sys.stderr.flush()


def _account(history: Path, rate: float | None) -> list[str]:
    """The violations that another program finds in the history, without the modules of this one."""
    command = [sys.executable, "-I", account.__file__, str(history), *([str(rate)] if rate else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [f"history: {line}" for line in (done.stdout + done.stderr).splitlines()]
