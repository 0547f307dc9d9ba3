"""A deployment with three shops on real servers, and an operator who uses nothing but the command line.

Every command of the operator is recorded with its duration and its output, for docs/operate/on-call.md.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acceptance.commands import WorkerCommand, closing_workers
from acceptance.several_sources import Shops
from integration.scene import Scene
from support import Cli, eventually

from ingest.lab.servers import EmbeddedServers
from ingest.lab.servers.server import free_port

SHOPS = ("shop-de", "shop-fr", "warehouse")


@dataclass
class Command:
    """A command that the operator has run."""

    line: str
    seconds: float
    output: str


@dataclass
class Transcript:
    """The steps of the operator in one situation.

    Attributes:
        began: when the fault began.
        repaired: seconds from then until everything worked again.
    """

    title: str
    commands: list[Command] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    repaired: float = 0.0

    def row(self) -> str:
        """A row of a Markdown table."""
        return f"| {self.title} | {len(self.commands)} | {self.repaired:.0f} s |"

    def text(self) -> str:
        """The commands with their output."""
        shown = (f"$ {each.line}   # {each.seconds:.1f} s\n{each.output}" for each in self.commands)
        return f"## {self.title}\n\n" + "\n".join(shown)


class Operator:
    """Runs commands, and reads their output.

    Args:
        environment: the settings of the deployment.
    """

    def __init__(self, cli: Cli, environment: Mapping[str, str], title: str) -> None:
        self._cli = cli
        self._environment = environment
        self.transcript = Transcript(title)

    async def run(self, *arguments: str, code: int | None = 0, stdin: str = "") -> str:
        """Run a command that must end with this code, or with any for None. Return its output."""
        started = time.monotonic()
        done = await asyncio.to_thread(
            self._cli.run, *arguments, stdin=stdin, env={**self._environment, "COLUMNS": "100"}, timeout=300
        )
        output = done.stdout + done.stderr
        line = " ".join(["ingest", *(f"'{each}'" if re.search(r"[\s<>$*]", each) else each for each in arguments)])
        self.transcript.commands.append(Command(line, time.monotonic() - started, output))
        assert code is None or done.returncode == code, f"{line}: {done.returncode}\n{output}"
        return output

    async def enqueue(self, shop: str, order_ids: Sequence[str], code: int | None = 0) -> str:
        """Enqueue orders of a shop."""
        return await self.run("enqueue", "--source", shop, "-q", "-", code=code, stdin="\n".join(order_ids))

    async def sees(self, *arguments: str, text: str, within: float = 30.0) -> str:
        """Run a command until its output matches a regular expression. Only the last one counts."""
        until = time.monotonic() + within
        while True:
            output = await self.run(*arguments, code=None)
            if re.search(text, " ".join(output.split())):
                return output
            assert time.monotonic() < until, f"no {text} within {within} s in:\n{output}"
            self.transcript.commands.pop()
            await asyncio.sleep(0.5)

    @contextmanager
    def other_tool(self, line: str) -> Iterator[None]:
        """Record a step without `ingest`, such as a text editor or psql."""
        started = time.monotonic()
        yield
        self.transcript.commands.append(Command(line, time.monotonic() - started, ""))


class Stage:
    """The deployment.

    Attributes:
        size: how large a situation is: 1.0 in full.
    """

    def __init__(self, shops: Shops, cli: Cli, servers: EmbeddedServers, folder: Path, size: float) -> None:
        self.shops = shops
        self.cli = cli
        self.servers = servers
        self.folder = folder
        self.size = size
        self.environment = {
            "INGEST_REDIS_URL": next(iter(shops.scenes.values())).redis_url,
            "INGEST_POSTGRES_DSN": next(iter(shops.scenes.values())).dsn,
            "INGEST_SOURCES": str(shops.file),
            "INGEST_STREAM": shops.stream,
            "INGEST_LOG_FORMAT": "json",
            "INGEST_CONCURRENCY": "40",
            "INGEST_PROCESSES": "2",
            "INGEST_METRICS_PORT": str(free_port()),
            "PYTHONPATH": str(folder),
        }

    @classmethod
    @asynccontextmanager
    async def open(
        cls, servers: EmbeddedServers, stream: str, cli: Cli, folder: Path, size: float
    ) -> AsyncIterator["Stage"]:
        """Open the shops on servers that a situation may stop, with a new database."""
        async with (
            Scene.open_fragile(servers, stream) as scene,
            Shops.open(scene, folder / "sources.toml", *SHOPS) as shops,
        ):
            for each in shops.scenes.values():
                each.dsn = scene.dsn
            yield cls(shops, cli, servers, folder, size)

    def operator(self, title: str) -> Operator:
        """An operator who is on call."""
        return Operator(self.cli, self.environment, title)

    @asynccontextmanager
    async def worker(self, **settings: Any) -> AsyncIterator[WorkerCommand]:
        """`ingest worker` with two processes, which are ready."""
        with closing_workers(self.cli, self.environment) as workers:
            command = workers.start(**settings)
            await command.says("ready")
            yield command

    def scene(self, shop: str) -> Scene:
        """One shop with its API and its queue."""
        return self.shops[shop]

    async def stored(self, shop: str) -> int:
        """The number of stored orders of a shop."""
        found = await self.scene(shop).sql("SELECT count(*) FROM orders WHERE source = $1", shop)
        return int(found[0][0])

    async def stores(self, shop: str, count: int, within: float = 120.0) -> None:
        """Wait until this many orders of a shop are stored."""

        async def enough() -> bool:
            return await self.stored(shop) >= count

        await eventually(enough, within=within, every=0.2)

    def write(self, name: str, text: str) -> Path:
        """Replace a file of the deployment."""
        path = self.folder / name
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)
        return path
