"""Troubles of one node of a cluster, each from its beginning to its end."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from signal import SIGCONT, SIGSTOP

from cluster_nodes import ClusterServer, ask
from cluster_set import ClusterSet

USER = "ingest"
# Seconds for which a slow node holds all commands back, again and again.
_HELD = 2.0


async def add_user(cluster: ClusterSet) -> str:
    """Create the user of the service on all nodes, and return the URL with it."""
    for node in cluster.nodes:
        await _add_user_to(node)
    return cluster.url().replace("redis+cluster://:", f"redis+cluster://{USER}:", 1)


async def _add_user_to(node: ClusterServer) -> None:
    await ask(node, "ACL", "SETUSER", USER, "on", f">{node.password}", "~*", "&*", "+@all")


@asynccontextmanager
async def slow(cluster: ClusterSet, node: ClusterServer, slot: int) -> AsyncIterator[None]:
    """Each reply takes up to two seconds."""
    del cluster, slot

    async def hold_back() -> None:
        while True:
            await ask(node, "CLIENT", "PAUSE", int(_HELD * 1000), "ALL")
            # Over when the next command is answered.
            await ask(node, "PING")

    task = asyncio.create_task(hold_back())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def open_slot(cluster: ClusterSet, node: ClusterServer, slot: int) -> AsyncIterator[None]:
    """A slot is about to move, as in the first step of a reshard."""
    other = next(each for each in await cluster.primaries() if each is not node)
    names = {each: await ask(each, "CLUSTER", "MYID") for each in (node, other)}
    await ask(other, "CLUSTER", "SETSLOT", slot, "IMPORTING", names[node])
    await ask(node, "CLUSTER", "SETSLOT", slot, "MIGRATING", names[other])
    yield
    for each in (node, other):
        await ask(each, "CLUSTER", "SETSLOT", slot, "STABLE")


@asynccontextmanager
async def denied(cluster: ClusterSet, node: ClusterServer, slot: int) -> AsyncIterator[None]:
    """The user of the service lacks all rights there, like on a node that was added without it."""
    del cluster, slot
    await ask(node, "ACL", "SETUSER", USER, "-@all")
    yield
    await ask(node, "ACL", "SETUSER", USER, "+@all")


@asynccontextmanager
async def frozen(cluster: ClusterSet, node: ClusterServer, slot: int) -> AsyncIterator[None]:
    """It does not respond, and no replica replaces it."""
    del cluster, slot
    os.kill(node.pid, SIGSTOP)
    yield
    os.kill(node.pid, SIGCONT)


@asynccontextmanager
async def killed(cluster: ClusterSet, node: ClusterServer, slot: int) -> AsyncIterator[None]:
    """It is gone, and no replica replaces it."""
    del cluster, slot
    node.kill()
    yield
    await asyncio.to_thread(node.start)
    await _add_user_to(node)


Trouble = Callable[[ClusterSet, ClusterServer, int], AbstractAsyncContextManager[None]]
TROUBLES: dict[str, Trouble] = {
    "slow": slow,
    "open slot": open_slot,
    "denied": denied,
    "frozen": frozen,
    "killed": killed,
}
