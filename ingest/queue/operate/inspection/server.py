"""Inspects a Redis, and checks which of the workers' commands it accepts. Changes nothing.

Commands are tried on a key that does not exist, in a form that does not create it: Redis checks the user's rights first.
"""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from ingest.domain.deliveries.entry_fields import ORDER_ID
from ingest.queue.consume.quota import quota_key
from ingest.queue.layout.entries import valid_order_id
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.inspection.facts import RedisFacts
from ingest.queue.redis.checked_connections import code_of
from ingest.queue.redis.connection import (
    QueueRefused,
    close_idle,
    control_client,
    is_about_keys,
    is_out_of_memory,
    translated,
)
from ingest.queue.redis.scripts import has_xnack
from ingest.queue.redis.topology import Server
from ingest.queue.redis.topology.role_connections import Redirected

_PINGS = 5
_NO_SCRIPT = "("  # does not compile, so it is not kept
# Commands with the arguments after the key. Those in the first list take no key.
_WITHOUT_KEY: Sequence[tuple[Any, ...]] = (
    ("EVAL", _NO_SCRIPT, 0),
    ("EVALSHA", "0" * 40, 0),
    ("SCRIPT LOAD", _NO_SCRIPT),
)
_READING: Sequence[tuple[Any, ...]] = (
    ("EXISTS",),
    ("GET",),
    ("HGET", "field"),
    ("HMGET", "field"),
    ("HSCAN", 0),
    ("XINFO CONSUMERS", "none"),
    ("XINFO GROUPS",),
    ("XINFO STREAM",),
    ("XLEN",),
    ("XPENDING", "none"),
    ("XRANGE", "-", "+", "COUNT", 1),
    ("XREVRANGE", "+", "-", "COUNT", 1),
    ("ZCARD",),
    ("ZMSCORE", "member"),
    ("ZRANGE", 0, 0),
    ("ZRANGEBYLEX", "-", "+", "LIMIT", 0, 1),
    ("ZRANGEBYSCORE", 0, 0, "LIMIT", 0, 1),
    ("ZSCORE", "member"),
)
_WRITING: Sequence[tuple[Any, ...]] = (
    ("XADD", "NOMKSTREAM", "*", "order_id", "probe"),
    ("HDEL", "field"),
    ("HSET", "field", "value", "a field without a value"),
    ("SET", "value", "XX"),
    ("XACK", "none", "0-1"),
    ("XAUTOCLAIM", "none", "none", 1000, 0, "COUNT", 1, "JUSTID"),
    ("XCLAIM", "none", "none", 1000, "0-1", "JUSTID"),
    ("XDEL", "0-1"),
    ("XGROUP CREATE", "none", 0),
    ("XGROUP DELCONSUMER", "none", "none"),
    ("XTRIM", "MINID", 0),
    ("ZADD", "XX", 0, "member"),
    ("ZREM", "member"),
    ("ZREMRANGEBYRANK", 0, 0),
)
PROBED = tuple(str(command[0]) for command in (*_WITHOUT_KEY, *_READING, *_WRITING, ("XREADGROUP",)))
"""The commands that are tried."""

# Commands for each key of the queue: a read, and a write without effect, because no entry has that name.
_NOBODY = "(none)"
_STREAM: Sequence[tuple[Any, ...]] = (("XRANGE", "-", "-", "COUNT", 1), ("XTRIM", "MINID", 0))
_SORTED_SET: Sequence[tuple[Any, ...]] = (("ZSCORE", _NOBODY), ("ZREM", _NOBODY))
_HASH: Sequence[tuple[Any, ...]] = (("HGET", _NOBODY), ("HDEL", _NOBODY))
_STRING: Sequence[tuple[Any, ...]] = (("GET",), ("SET", "", "XX", "PX", 1))

# Replies of a server that accepts no writes now, or never does.
_NO_WRITES = {"READONLY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "MOVED", "OOM"}
_UNKNOWN = ("unknown command", "unknown subcommand")


async def inspect(
    at: str | Server, queues: Mapping[str, str], group: str, records: Collection[str] = (), *, is_node: bool = False
) -> RedisFacts:
    """Look at a server.

    Args:
        at: the server, or its URL.
        queues: on this server, each with the name of its quota. Without any, commands are not tried.
        group: the consumer group.
        records: keys of hashes with partitions of queues.
        is_node: whether it is a node of a cluster.

    Raises:
        QueueUnavailable: if it cannot be reached.
        QueueRefused: if it denies access, or is not Redis.
    """
    facts = RedisFacts()
    async with control_client(at) as client:
        await _measure(client, facts)
        facts.info = await _info(client)
        if is_node:
            facts.cluster = await _cluster(client)
        if not queues:
            return facts
        probe = Keys.of(next(iter(queues)), group).probe
        # A cluster node that has never served our keys is a different error from a node that has handed them over. Only a new
        # connection distinguishes them.
        await close_idle(client)
        with translated():
            for queue, quota in queues.items():
                await _look_at_keys(client, queue, Keys.of(queue, group), [quota_key(quota), *records], facts)
            await _try_commands(client, probe, facts)
        if not facts.no_writes and not facts.closed_keys:
            facts.has_xnack = await has_xnack(client, probe)
    return facts


async def _info(client: Redis) -> Mapping[str, Any]:
    try:
        with translated():
            found: Mapping[str, Any] = await client.info()
    except QueueRefused as error:
        if isinstance(error.__cause__, NoPermissionError | ResponseError):
            return {}
        raise
    return found


async def _cluster(client: Redis) -> Mapping[str, str]:
    try:
        with translated():
            reply: Any = await client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]  # redis-py leaves it so
            lines = reply.decode().splitlines()
    except QueueRefused:
        return {}
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


async def _measure(client: Redis, facts: RedisFacts) -> None:
    """The round trip, and the clock by the fastest of a few replies."""
    best = float("inf")
    for _ in range(_PINGS):
        started, began = time.monotonic(), time.time()
        try:
            with translated():
                seconds, micros = await client.time()
        except QueueRefused as error:
            if not isinstance(error.__cause__, NoPermissionError):
                raise
            facts.refused.append("TIME")
            return
        took = time.monotonic() - started
        if took < best:
            best = took
            facts.clock_ahead = seconds + micros / 1e6 - (began + took / 2)
    facts.round_trip = best


async def _look_at_keys(client: Redis, queue: str, keys: Keys, others: Sequence[str], facts: RedisFacts) -> None:
    """Whether we may read and write the keys, and their types are right."""
    calls = [(command, key, *rest) for key, looks in _looks(keys) for command, *rest in looks]
    errors = await _errors(client, [*calls, *(("EXISTS", key) for key in others)])
    facts.closed_keys += dict.fromkeys(call[1] for call, error in errors if is_about_keys(error))
    facts.other_types += dict.fromkeys(call[1] for call, error in errors if str(error).startswith("WRONGTYPE"))
    if not facts.closed_keys and not facts.other_types:
        facts.newest[queue] = await _newest(client, keys)


def _looks(keys: Keys) -> Iterator[tuple[str, Sequence[tuple[Any, ...]]]]:
    """Each key of a queue, one for each common prefix, with commands for its type."""
    for key in (keys.stream, keys.express, keys.dead, keys.results):
        yield key, _STREAM
    for key in (keys.retry, keys.retry_announced, keys.erased, keys.alive, keys.standing):
        yield key, _SORTED_SET
    for lane in keys.lanes:
        yield lane.released, _SORTED_SET
        yield lane.settled, _SORTED_SET
    for key in (keys.retry_entries, keys.dead_seen, keys.dead_moved, keys.clock, keys.maintenance):
        yield key, _HASH
    for prefix in (keys.records, keys.waiting, keys.express_waiting, keys.circuit):
        yield f"{prefix}{_NOBODY}", _STRING
    for key in (keys.pushed, keys.probe):
        yield key, _STRING


async def _newest(client: Redis, keys: Keys) -> str | None:
    """The newest order with a valid ID at the end of either lane."""
    for stream in (keys.stream, keys.express):
        try:
            found: Any = await client.xrevrange(stream, count=1)
        except ResponseError:
            continue
        if found and (order_id := valid_order_id(found[0][1].get(ORDER_ID))):
            return order_id
    return None


async def _try_commands(client: Redis, key: str, facts: RedisFacts) -> None:
    """The first writing command. If the server accepts no writes, the others would get the same reply."""
    (first, *writing), read = _WRITING, ("XREADGROUP", "GROUP", "none", "none", "COUNT", 1, "STREAMS", key, ">")
    calls = [*_WITHOUT_KEY, *((name, key, *rest) for name, *rest in (*_READING, *writing)), read]
    await _try(client, [(first[0], key, *first[1:])], facts)
    if not facts.no_writes:
        await _try(client, calls, facts)


async def _try(client: Redis, calls: Sequence[tuple[Any, ...]], facts: RedisFacts) -> None:
    for call, error in await _errors(client, calls):
        _note(str(call[0]), error, facts)


async def _errors(client: Redis, calls: Sequence[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], ResponseError]]:
    """Send these concurrently, on the client's connections, and return the ones with an error reply."""
    sent = (client.execute_command(*call) for call in calls)  # type: ignore[no-untyped-call]  # redis-py leaves it so
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    errors: list[tuple[tuple[Any, ...], ResponseError]] = []
    for call, outcome in zip(calls, outcomes, strict=True):
        if isinstance(outcome, ResponseError):
            errors.append((call, outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
    return errors


def _note(command: str, error: ResponseError, facts: RedisFacts) -> None:
    """The meaning of an error reply. Most mean that the key or group is missing, so that the command is accepted."""
    text = str(error)
    if isinstance(error, Redirected):
        return  # the slot is moving to another node, which is inspected as well
    if code_of(error) in _NO_WRITES or is_out_of_memory(error):
        # redis-py cuts the code from some of them.
        code = code_of(error)
        facts.no_writes = text if not code.isupper() or code in text else f"{code} {text}"
    elif isinstance(error, NoPermissionError):
        if not is_about_keys(error):
            facts.refused.append(command)
    elif any(words in text for words in _UNKNOWN):
        facts.unknown.append(command)
