"""A request as routes get it: with the variables of its path, and a body that is read within limits."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from aiohttp import HttpVersion11, web
from aiohttp.web_urldispatcher import UrlMappingMatchInfo
from multidict import CIMultiDict, MultiMapping

from ingest.api.http.body_memory import BodyMemory, Sender
from ingest.api.http.problems import Problem

_T = TypeVar("_T")
# What every answer says: nothing here is a page, and nothing may be kept.
SECURITY_HEADERS: CIMultiDict[str] = CIMultiDict(
    {
        "Cache-Control": "no-store",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
)


_SECURITY = tuple(SECURITY_HEADERS.items())


class _Connection(Protocol):
    async def until_lost(self, reading: Awaitable[_T]) -> _T:
        """See `ingest.api.http.connection`."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What is read of a body.

    Attributes:
        size: bytes of a body that is read whole.
        seconds: for a body that is read whole, or for each batch of one that is streamed.
        memory: of all bodies.
    """

    size: int
    seconds: float
    memory: BodyMemory


class Request(web.Request):
    """A request; its path has been resolved by our own table."""

    ATTRS = web.Request.ATTRS | {"caller", "taken", "variables"}

    variables: Mapping[str, str]
    taken = 0
    caller = ""

    @property
    def sender(self) -> Sender | None:
        """The connection on which it comes."""
        return cast("Sender", self.protocol)

    @property
    def match_info(self) -> UrlMappingMatchInfo:
        """The variables of the path; of aiohttp's type only those can be used."""
        return cast("UrlMappingMatchInfo", self.variables)

    @property
    def is_usual(self) -> bool:
        """Whether it is HTTP/1.1 and keeps its connection."""
        return self.version == HttpVersion11 and self.keep_alive

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        # The one place that every answer passes, also those of the HTTP server itself.
        headers = response.headers
        headers.popall("Server", None)
        if "X-Content-Type-Options" not in headers:
            for name, value in _SECURITY:
                headers.setdefault(name, value)


async def while_connected(request: web.Request, reading: Awaitable[_T]) -> _T:
    """Await something that only reads, for as long as the client is there to have the answer."""
    return await cast("_Connection", request.protocol).until_lost(reading)


async def read_body(request: web.Request, limits: BodyLimits) -> bytes:
    """The whole body.

    Raises:
        Problem: 408, 413, 415 or 503.
    """
    refuse_encoding(request.headers)
    content = request.content
    if content.is_eof():
        # All of it has come together with the header: there is nothing to wait for.
        body = content.read_nowait()
        if len(body) > limits.size:
            raise too_large(limits.size)
        return body
    if (request.content_length or 0) > limits.size:
        raise too_large(limits.size)
    try:
        async with asyncio.timeout(limits.seconds):
            return await _read_all(request, limits)
    except TimeoutError:
        raise too_slow(limits.seconds) from None


async def _read_all(request: web.Request, limits: BodyLimits) -> bytes:
    body = bytearray()
    while chunk := await request.content.readany():
        limits.memory.take(cast("Request", request), len(chunk))
        body += chunk
        if len(body) > limits.size:
            raise too_large(limits.size)
    return bytes(body)


def refuse_encoding(headers: MultiMapping[str]) -> None:
    """Refuse a compressed body: a small one could become a huge one here.

    Raises:
        Problem: 415.
    """
    if "Content-Encoding" in headers and _codings(headers, "Content-Encoding") - {"identity"}:
        raise _compressed()
    if "Transfer-Encoding" in headers and _codings(headers, "Transfer-Encoding") - {"chunked"}:
        raise _compressed()


def _codings(headers: MultiMapping[str], name: str) -> set[str]:
    return {coding.strip().lower() for value in headers.getall(name) for coding in value.split(",")}


def _compressed() -> Problem:
    detail = "compressed bodies are not accepted"
    return Problem(415, "content_encoding", detail, headers={"Accept-Encoding": "identity"})


def too_large(limit: int) -> Problem:
    """413."""
    return Problem(413, "body_too_large", f"the body has more than {limit:,} bytes", limit=limit)


def too_slow(seconds: float) -> Problem:
    """408."""
    return Problem(408, "body_too_slow", f"the body has not come within {seconds:g} s")
