"""The system of docker-compose.yml, from a copy of the tree, so that secrets are made there and not in the checkout."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from deploy.machine import WORK
from deploy.shell import Done, attempt, run, wait_for
from deploy.standins import COMPOSE
from ingest.lab.upstream.samples import sample_orders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.engine import Docker

DEMO_ORDERS, DEMO_RATE = 2_000, 100
WORKERS = 4
# No package of Debian's, so there is no stand-in.
LEFT_OUT = "grafana"
DEAD = "ingest:{orders}:dead"

_CHECKOUT = Path(__file__).parents[2]
_COPIED = (
    *("Dockerfile", ".dockerignore", "docker-compose.yml", "deploy", "ingest"),
    *("pyproject.toml", "requirements.lock", "requirements-build.lock", "README.md", "LICENSE"),
)
_PORTS = ("REDIS_PORT", "POSTGRES_PORT", "API_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT")
# Less than a test may take.
_HEALTHY_WITHIN = 100
# Redis' default length of its ACL log, of which it shows ten by default.
_WHOLE_ACL_LOG = 128


def copy_of_the_tree() -> Path:
    """The files of the image and the system, without passwords of a real deployment."""
    tree = WORK / "tree"
    tree.mkdir()
    for name in _COPIED:
        source = _CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=_not_copied)
        else:
            shutil.copy(source, tree / name)
    return tree


def _not_copied(folder: str, names: list[str]) -> set[str]:
    if Path(folder).name == "secrets":
        return {name for name in names if name != "generate"}
    return {name for name in names if name == "__pycache__"}


@dataclass(frozen=True)
class Container:
    """A container of a service."""

    docker: Docker
    id: str
    service: str

    @property
    def facts(self) -> dict[str, Any]:
        """The engine's current data about the container."""
        return self.docker.inspect(self.id)

    @property
    def state(self) -> dict[str, Any]:
        """Whether it runs, its exit code, its health."""
        return dict(self.facts["State"])

    def processes(self) -> list[str]:
        """A line for each process, beginning with its user's number, or none if the container has ended."""
        done = self.docker.attempt("top", self.id, "-eo", "uid,pid,args")
        assert done.code == 0 or not self.state["Running"], done.err
        return done.out.splitlines()[1:]

    @property
    def address(self) -> str:
        """Its IP address, which this machine reaches."""
        return str(next(network["IPAddress"] for network in self.facts["NetworkSettings"]["Networks"].values()))

    def metric(self, name: str, **labels: str) -> float:
        """A sample of its /metrics."""
        wanted = {"source": "", **labels}
        for family in text_string_to_metric_families(fetch(f"http://{self.address}:9464/metrics")):
            for sample in family.samples:
                if sample.name == name and {"source": "", **sample.labels} == wanted:
                    return float(sample.value)
        raise LookupError(f"{name} {labels} of {self.service} {self.id[:12]}")


class Project:
    """The system, as `docker compose` runs it."""

    def __init__(self, docker: Docker, tree: Path) -> None:
        self.docker = docker
        self.tree = tree
        self.ports = _free_ports()
        ports = {name: str(port) for name, port in self.ports.items()}
        self._env = {**docker.env, **ports, "DEMO_ORDERS": str(DEMO_ORDERS), "DEMO_RATE": str(DEMO_RATE)}
        self._profiles = ["demo"]

    # -- Compose --------------------------------------------------------------------------------------------------

    def compose(self, *arguments: str, stdin: str = "") -> str:
        """Run a `docker compose …` that has to succeed, and return its output."""
        return run(*self._command(arguments), stdin=stdin, env=self._env, cwd=self.tree)

    def attempt(self, *arguments: str, stdin: str = "") -> Done:
        """Run a `docker compose …` with any exit code."""
        return attempt(*self._command(arguments), stdin=stdin, env=self._env, cwd=self.tree)

    def _command(self, arguments: Sequence[str]) -> list[str | Path]:
        profiles = [option for name in self._profiles for option in ("--profile", name)]
        return [COMPOSE, "--progress", "quiet", *profiles, *arguments]

    @property
    def services(self) -> dict[str, Any]:
        """The services in Compose's resolved file, without the excluded ones."""
        services: dict[str, Any] = json.loads(self.compose("config", "--format", "json"))["services"]
        return {name: facts for name, facts in services.items() if name != LEFT_OUT}

    def use_cluster(self) -> None:
        """Use the cluster from the next `up` on."""
        lines = (self.tree / "deploy/redis/cluster.env").read_text().splitlines()
        self._env |= dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        self._profiles.append(self._env.pop("COMPOSE_PROFILES"))

    def up(self) -> None:
        """Bring the system up, and wait until all of it is healthy."""
        options = ("--wait", "--wait-timeout", str(_HEALTHY_WITHIN), "--scale", f"worker={WORKERS}", "--no-build")
        self.compose("up", *options, *self.services)

    def containers(self, *services: str, all_states: bool = False) -> list[Container]:
        """The containers of these or all services by number, optionally including ended ones."""
        options = ["--all"] if all_states else []
        listed = [json.loads(line) for line in self.compose("ps", "--format", "json", *options, *services).splitlines()]
        return [
            Container(self.docker, one["ID"], one["Service"]) for one in sorted(listed, key=lambda one: one["Name"])
        ]

    def ingest(self, *arguments: str, stdin: str = "") -> Done:
        """Run `ingest …` in a running worker's container."""
        number = str(self.containers("worker")[0].facts["Config"]["Labels"]["com.docker.compose.container-number"])
        return self.attempt("exec", "--no-TTY", "--index", number, "worker", "ingest", *arguments, stdin=stdin)

    def last_words(self, lines: int) -> str:
        """The state and the last log lines of each container."""
        told = []
        for container in self.containers(all_states=True):
            state = container.state
            said = self.docker.attempt("logs", "--tail", str(lines), container.id)
            told.append(f"{container.service} {container.id[:12]}: {state['Status']}, exit code {state['ExitCode']}")
            told.append(said.out + said.err)
        return "\n".join(told)

    # -- Inside ---------------------------------------------------------------------------------------------------

    def secret(self, name: str) -> str:
        """A password of this system."""
        return (self.tree / "deploy/secrets" / name).read_text()

    def redis(self, user: str = "admin") -> Redis:
        """Redis as one of its users sees it, by the published port."""
        password = {
            "admin": "redis_admin_password",
            "ingest": "redis_password",
            "ingest-api": "redis_api_password",
            "ingest-producer": "redis_producer_password",
        }[user]
        return Redis(
            port=self.ports["REDIS_PORT"], username=user, password=self.secret(password), decode_responses=True
        )

    def refused_commands(self) -> list[dict[str, Any]]:
        """The commands that Redis' ACL has denied since its start or the last reset."""
        with self.redis() as redis:
            return list(redis.acl_log(_WHOLE_ACL_LOG))

    def query(self, statement: str, *arguments: object, role: str = "ingest") -> list[Any]:
        """Rows of the database, as one of its roles sees it, by the published port."""
        password = {
            "ingest": "postgres_password",
            "ingest_api": "postgres_api_password",
            "ingest_owner": "postgres_owner_password",
        }[role]

        async def ask() -> list[Any]:
            connection = await asyncpg.connect(
                host="127.0.0.1",
                port=self.ports["POSTGRES_PORT"],
                user=role,
                password=self.secret(password),
                database="ingest",
                ssl=False,
            )
            try:
                return list(await connection.fetch(statement, *arguments))
            finally:
                await connection.close()

        return asyncio.run(ask())

    def stored(self, order_ids: Sequence[str]) -> int:
        """How many of these orders are in the database."""
        return int(self.query("SELECT count(*) FROM orders WHERE order_id = ANY($1)", list(order_ids))[0][0])

    def wait_until_stored(self, order_ids: Sequence[str], *, within: float) -> float:
        """Wait until all orders are stored, and return the duration."""
        return wait_for(
            f"{len(order_ids)} orders are stored", lambda: self.stored(order_ids) == len(order_ids), within=within
        )

    def set_upstream(self, **behaviour: object) -> None:
        """Change how the simulated external API behaves."""
        (api,) = self.containers("upstream")
        url = f"http://{api.address}:8081/behaviour"
        request = urllib.request.Request(url, json.dumps(behaviour).encode(), method="PATCH")
        with urllib.request.urlopen(request, timeout=10):
            pass

    @property
    def prometheus(self) -> str:
        """The URL of Prometheus."""
        return f"http://127.0.0.1:{self.ports['PROMETHEUS_PORT']}"

    def ask_prometheus(self, path: str) -> Any:
        """The data of an answer of Prometheus' API."""
        return json.loads(fetch(f"{self.prometheus}/api/v1/{path}"))["data"]


def samples(first: int, count: int) -> list[str]:
    """IDs of sample orders of the simulated external API, of which the demo announces the first ones."""
    found = list(islice(sample_orders(), first, first + count))
    assert len(found) == count, "there are not so many sample orders"
    return found


def fetch(url: str) -> str:
    """The response of a URL of this machine."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _free_ports() -> dict[str, int]:
    with ExitStack() as stack:
        sockets = {name: stack.enter_context(socket.socket()) for name in _PORTS}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in sockets.items()}
