"""A standalone server or a cluster, each server with a share of a processor if wanted."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cluster_set import ClusterSet
from rehearsals.scale.control_groups import ControlGroups, Limits
from servers.kinds import Kind

from ingest.lab.servers import ValkeyServer

Made = tuple[str, Sequence[ValkeyServer]]
"""Where clients connect, and the servers."""


class LimitedHosts:
    """Gives each node of a `ClusterSet` a share of a processor, as if it had its own host."""

    def __init__(self, groups: ControlGroups, limits: Limits) -> None:
        self._groups = groups
        self._limits = limits

    def add(self) -> tuple[str, Any]:
        """The address of another node, and a function whose result runs a command there."""
        group = self._groups.make(self._limits)
        return "127.0.0.1", lambda command: group.containing([str(part) for part in command])


class LimitedServer(ValkeyServer):
    """A server with a share of a processor."""

    def __init__(self, folder: Path, kind: Kind, hosts: LimitedHosts | None) -> None:
        super().__init__(folder, binary=kind.binary)
        self._there = hosts.add()[1] if hosts else list

    def _command(self, port: int) -> Sequence[str | Path]:
        return self._there(super()._command(port))


@asynccontextmanager
async def standalone(kind: Kind, folder: Path, hosts: LimitedHosts | None) -> AsyncIterator[Made]:
    """One server, and where clients connect."""
    with LimitedServer(folder / "server", kind, hosts) as server:
        yield server.url, [server]


@asynccontextmanager
async def cluster(kind: Kind, folder: Path, nodes: int, hosts: LimitedHosts | None) -> AsyncIterator[Made]:
    """A cluster without replicas, and where clients connect."""
    with ClusterSet.open(kind, folder, primaries=nodes, replicas=0, network=hosts) as made:
        await made.become_ready()
        yield made.url(), list(made.nodes)
