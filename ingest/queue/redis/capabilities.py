"""The server's capabilities beyond Redis 7.0, found by trying instead of by its version, because forks count differently."""

from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.queue.redis.connection import is_out_of_memory, translated

_ABSENT = ("unknown command", "syntax error", "Invalid stream ID", "NOPERM", "no permissions")


class Capabilities(msgspec.Struct, frozen=True):
    """Commands that make a move cheaper or faster. Each has a fallback that keeps every invariant.

    Attributes:
        acks_and_deletes: `XACKDEL` (Redis 8.2).
        claims_as_it_reads: `XREADGROUP … CLAIM` (Redis 8.4).
        adds_idempotently: `XADD … IDMP` (Redis 8.6).
        releases: `XNACK` (Redis 8.8).
    """

    acks_and_deletes: bool = False
    claims_as_it_reads: bool = False
    adds_idempotently: bool = False
    releases: bool = False


async def probe(client: Redis, key: str) -> Capabilities:
    """Try each command on `key`, which does not exist and is not created. A command that an ACL forbids counts as absent.

    Raises:
        QueueUnavailable: if Redis cannot be used right now.
    """
    return Capabilities(
        acks_and_deletes=await _is_known(client, "XACKDEL", key, "none", "ACKED", "IDS", 1, "0-1"),
        claims_as_it_reads=await _is_known(
            client, "XREADGROUP", "GROUP", "none", "none", "COUNT", 1, "CLAIM", 1000, "STREAMS", key, ">"
        ),
        adds_idempotently=await _adds_idempotently(client, key),
        releases=await _is_known(client, "XNACK", key, "none", "SILENT", "IDS", 1, "0-1"),
    )


async def probe_for_producers(client: Redis, key: str) -> Capabilities:
    """`probe` for producers. Commands that they never send are not tried, because their users may not be allowed to send them.

    Raises:
        QueueUnavailable: if Redis cannot be used right now.
    """
    return Capabilities(adds_idempotently=await _adds_idempotently(client, key))


async def _adds_idempotently(client: Redis, key: str) -> bool:
    return await _is_known(client, "XADD", key, "NOMKSTREAM", "IDMP", "probe", "probe", "*", "order_id", "probe")


async def _is_known(client: Redis, *command: Any) -> bool:
    with translated():
        try:
            await client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it so
        except ResponseError as error:
            # Out of memory, Redis does not check the command, so that the fallback is used.
            if is_out_of_memory(error) or any(text in str(error) for text in _ABSENT):
                return False
            if "NOGROUP" not in str(error):
                raise
    return True
