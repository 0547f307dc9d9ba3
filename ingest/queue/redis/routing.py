"""Sends each command to the node of a cluster that owns its keys.

Only a command that was not executed is sent to another node. As with every client here, whatever else fails is repeated by the caller.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import ConnectionError, RedisError, TimeoutError  # noqa: A004  redis-py's own, which are no OSErrors

from ingest.queue.redis.topology.cluster import ClusterNode, ClusterTopology, SlotOwner, slot_of
from ingest.queue.redis.topology.role_connections import Redirected

# How often a command follows to another node. A slot that moves does so once or twice.
_MOST_REDIRECTIONS = 5
# Replies of a node that may have been replaced, instead of the reply to a command.
_LOST = (ConnectionError, TimeoutError, OSError)

# Commands that concern a server, by their first word.
_WITHOUT_KEY = {
    "ACL", "BGREWRITEAOF", "BGSAVE", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "DEBUG", "FLUSHALL", "FLUSHDB", "FUNCTION",
    "HELLO", "INFO", "LASTSAVE", "LATENCY", "LOLWUT", "MODULE", "PING", "ROLE", "SAVE", "SCAN", "SCRIPT", "SHUTDOWN", "SLOWLOG", "TIME",
    "WAIT", "WAITAOF",
}  # fmt: skip
# Commands whose second word is another command, which the key follows.
_WITH_SUBCOMMAND = {"MEMORY", "OBJECT", "XGROUP", "XINFO"}
_SCRIPTS = {"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"}
_READS = {"XREAD", "XREADGROUP"}

Command = tuple[Sequence[Any], Mapping[str, Any]]
"""A command with its options, as redis-py keeps it in a pipeline."""


class Routed(ABC):
    """Commands for all nodes of a cluster.

    Attributes:
        topology: the cluster.
        home: the slot whose owner gets commands without a key. Without it, it is one of the primaries, always the same one.
    """

    topology: ClusterTopology
    home: int | None

    def place(self, at: ClusterTopology | SlotOwner) -> None:
        """Send to a cluster. Commands without a key go to the owner of the slot, if it is one."""
        self.topology, self.home = (at.topology, at.slot) if isinstance(at, SlotOwner) else (at, None)

    @abstractmethod
    async def send_one(self, node: ClusterNode, command: Command) -> Any:
        """Send a command to a node, and return its reply."""

    @abstractmethod
    async def send_together(self, node: ClusterNode, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        """Send commands to a node, and return their replies. An error reply is an exception among them."""

    async def route(self, command: Command) -> Any:
        """Send a command to the node that owns its keys, and return its reply."""
        for _ in range(_MOST_REDIRECTIONS):
            node = await self._node_for(first_key(command[0]))
            try:
                return await self.send_one(node, command)
            except Redirected as error:
                if error.is_asking:
                    asking = [(("ASKING",), {}), command]
                    _, reply = await self._together(
                        self.topology.node_at(self.topology.slots.reached(error.address)), asking, transaction=False
                    )
                    if isinstance(reply, Exception):
                        raise reply from None
                    return reply
            except _LOST:
                node.suspect()
                raise
        raise ConnectionError("the keys move between the nodes of the cluster")

    async def route_all(self, commands: Sequence[Command], *, transaction: bool = False) -> list[Any]:
        """Send each command to the node of its keys, the commands of one node together, and return the replies or errors in order.

        A command without a key goes to the node of the first key. A node that fails does not concern the others.
        """
        keys = [first_key(command) for command, _ in commands]
        first = next((key for key in keys if key is not None), None)
        found: list[Any] = [None] * len(commands)
        by_node: dict[ClusterNode, list[int]] = {}
        for number, key in enumerate(keys):
            try:
                node = await self._node_for(first if transaction or key is None else key)
            except RedisError as error:
                found[number] = error
            else:
                by_node.setdefault(node, []).append(number)

        async def send_to(node: ClusterNode, numbers: list[int]) -> None:
            replies = await self._together(node, [commands[number] for number in numbers], transaction=transaction)
            is_redirected = any(isinstance(reply, Redirected) for reply in replies)
            for number, reply in zip(numbers, replies, strict=True):
                # `WAIT` and the like are about the commands that were redirected.
                is_lost = is_redirected and (transaction or keys[number] is None)
                found[number] = ConnectionError("the keys are moving to another node") if is_lost else reply

        await asyncio.gather(*(send_to(node, numbers) for node, numbers in by_node.items()))
        for number, reply in enumerate(found):
            if isinstance(reply, Redirected):
                try:
                    found[number] = await self.route(commands[number])
                except (RedisError, OSError) as error:
                    found[number] = error
        return found

    async def _together(self, node: ClusterNode, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        try:
            return await self.send_together(node, commands, transaction=transaction)
        except (RedisError, OSError) as error:
            if isinstance(error, _LOST):
                node.suspect()
            return [error] * len(commands)

    async def _node_for(self, key: str | bytes | None) -> ClusterNode:
        slot = self.home if key is None else slot_of(key)
        return (await self.topology.primaries())[0] if slot is None else await self.topology.node_of(slot)


def first_key(command: Sequence[Any]) -> str | bytes | None:
    """Return the first key of a command, or None if it has none and concerns a server.

    redis-py passes the two words of some commands as one.
    """
    words = _text(command[0]).upper().split()
    name = words[0]
    if name in _WITHOUT_KEY or (name in _SCRIPTS and not int(command[2])):
        return None
    if name in _SCRIPTS:
        position = 3
    elif name in _READS:
        position = _after_streams(command)
    else:
        position = 2 if name in _WITH_SUBCOMMAND and len(words) == 1 else 1
    key: str | bytes = command[position]
    return key


def _after_streams(command: Sequence[Any]) -> int:
    # Behind the names of the group and the consumer, which may be called so as well.
    start = 4 if _text(command[0]).upper() == "XREADGROUP" else 1
    return next(at for at in range(start, len(command)) if _text(command[at]).upper() == "STREAMS") + 1


def _text(word: Any) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
