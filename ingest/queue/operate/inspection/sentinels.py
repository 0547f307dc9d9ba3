"""Inspects the Sentinels that a URL names. Changes nothing."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from ingest.domain.errors import QueueUnavailable
from ingest.domain.redis_urls.redis_addresses import Address, address_text
from ingest.domain.redis_urls.sentinel_url import SentinelUrl
from ingest.queue.redis.connection import translated
from ingest.queue.redis.topology.sentinel import sentinel_client

_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class SentinelFacts:
    """The reports of one Sentinel.

    Attributes:
        address: as in the URL.
        problem: why it cannot be used, or empty.
        service: its report about the service: `ip`, `port`, `num-slaves`, `num-other-sentinels`, `quorum` and more.
        is_denied: whether the user may only read the address.
        no_quorum: why the Sentinels known to it cannot replace the primary, or empty.
    """

    address: str
    problem: str = ""
    service: Mapping[str, str] = field(default_factory=dict)
    no_quorum: str = ""
    is_denied: bool = False


async def inspect_sentinels(url: SentinelUrl) -> Sequence[SentinelFacts]:
    """Look at each Sentinel."""
    return await asyncio.gather(*(_inspected(url, address) for address in url.sentinels))


async def _inspected(url: SentinelUrl, address: Address) -> SentinelFacts:
    name = address_text(address)
    try:
        with translated():
            async with sentinel_client(url, address, _TIMEOUT) as sentinel:
                return await _read(sentinel, name, url.service)
    except QueueUnavailable as error:
        return SentinelFacts(name, problem=str(error))


async def _read(sentinel: Any, name: str, service: str) -> SentinelFacts:
    # As two words, because redis-py would not return the replies as they are.
    try:
        report = await sentinel.execute_command("SENTINEL", "MASTER", service)
    except NoPermissionError:
        address = await sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        if address is None:
            return SentinelFacts(name, problem=f"does not watch a service {service!r}")
        return SentinelFacts(name, service=_texts([b"ip", address[0], b"port", address[1]]), is_denied=True)
    return SentinelFacts(name, service=_texts(report), no_quorum=await _no_quorum(sentinel, service))


async def _no_quorum(sentinel: Any, service: str) -> str:
    try:
        await sentinel.execute_command("SENTINEL", "CKQUORUM", service)
    except NoPermissionError:
        return ""
    except ResponseError as error:
        return str(error)
    return ""


def _texts(reply: Any) -> Mapping[str, str]:
    """The report by name, in either version of the protocol."""
    values: Iterable[tuple[bytes, bytes]] = (
        reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    )
    return {name.decode(): value.decode() for name, value in values}
