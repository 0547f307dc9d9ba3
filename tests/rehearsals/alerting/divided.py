"""A source whose partitions are divided among the nodes of a real Redis Cluster, for the alert about a single partition."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cluster_nodes import ask
from cluster_set import ClusterSet
from rehearsals.alerting.system import slow
from servers.kinds import KINDS

from ingest.domain.source_name import queue_of
from ingest.queue.layout.keys import Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rehearsals.alerting.system import System

SOURCE = "parted"
_PARTITIONS, _ORDERS = 4, 400


@asynccontextmanager
async def a_node_accepts_no_writes(system: System, speed: float) -> AsyncIterator[None]:
    """Orders wait in all partitions. Then one of two nodes accepts no writes, and the other one is processed."""
    del speed
    on = system.on
    file = on.home / "parted.toml"
    file.write_text(f'[sources.{SOURCE}]\npartitions = {_PARTITIONS}\nupstream.url = "{system.url_of(SOURCE)}"\n')
    (on.home / "parted.txt").write_text("".join(f"parted-{number}\n" for number in range(_ORDERS)))
    (on.home / "cluster").mkdir()
    # Both outlive this block, so that the alert ends because its cause has ended.
    cluster = system.stack.enter_context(ClusterSet.open(KINDS[0], on.home / "cluster", primaries=2, replicas=0))
    await cluster.become_ready()
    environment = {"INGEST_REDIS_URL": cluster.url(), "INGEST_SOURCES": str(file)}
    system.shops[SOURCE] = slow
    await system.start("divided", "worker", "--processes", "1", **environment)
    await asyncio.to_thread(on.commands.start("enqueue", "--file", "parted.txt", **environment).finish)
    node = await cluster.owner(Keys.of(f"{queue_of(on.stream, SOURCE)}:0").stream)
    await ask(node, "CONFIG", "SET", "min-replicas-to-write", "1")
    del system.shops[SOURCE]
    yield
    await ask(node, "CONFIG", "SET", "min-replicas-to-write", "0")
