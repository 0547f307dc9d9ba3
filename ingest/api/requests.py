"""A request as routes get it: with the variables of its path, and a body that is read within limits."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import cast

from aiohttp import web
from aiohttp.web_urldispatcher import UrlMappingMatchInfo
from multidict import CIMultiDict

from ingest.api.problems import Problem

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


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What is read of a body.

    Attributes:
        size: bytes of a body that is read whole.
        seconds: for a body that is read whole, or for each piece of one that is streamed.
    """

    size: int
    seconds: float


class Request(web.Request):
    """A request; its path has been resolved by our own table."""

    variables: Mapping[str, str]

    @property
    def match_info(self) -> UrlMappingMatchInfo:
        """The variables of the path; of aiohttp's type only those can be used."""
        return cast("UrlMappingMatchInfo", self.variables)

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        # The one place that every answer passes, also those of the HTTP server itself.
        headers = response.headers
        headers.popall("Server", None)
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)


async def read_body(request: web.Request, limits: BodyLimits) -> bytes:
    """The whole body.

    Raises:
        Problem: 408, 413 or 415.
    """
    if (length := request.content_length) is not None and length > limits.size:
        raise too_large(limits.size)
    content = request.content
    if content.is_eof():
        # All of it has come together with the header: there is nothing to wait for.
        body = content.read_nowait()
    else:
        body = await _read_all(request, limits)
    if len(body) > limits.size:
        raise too_large(limits.size)
    return body


async def _read_all(request: web.Request, limits: BodyLimits) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > limits.size:
                    break
    except TimeoutError:
        raise too_slow(limits.seconds) from None
    return bytes(body)


async def pieces(request: web.Request, limits: BodyLimits) -> AsyncIterator[bytes]:
    """The body as it comes.

    Raises:
        Problem: 408 if nothing comes for too long.
    """
    while True:
        try:
            async with asyncio.timeout(limits.seconds):
                chunk = await request.content.readany()
        except TimeoutError:
            raise too_slow(limits.seconds) from None
        if not chunk:
            return
        yield chunk


def check_encoding(headers: Mapping[str, str]) -> None:
    """Refuse a compressed body: a small one could become a huge one here.

    Raises:
        Problem: 415.
    """
    if headers.get("Content-Encoding", "identity").lower() not in {"", "identity"}:
        raise Problem(
            415, "content_encoding", "compressed bodies are not accepted", headers={"Accept-Encoding": "identity"}
        )


def too_large(limit: int) -> Problem:
    """413."""
    return Problem(413, "body_too_large", f"the body has more than {limit:,} bytes", limit=limit)


def too_slow(seconds: float) -> Problem:
    """408."""
    return Problem(408, "body_too_slow", f"the body has not come within {seconds:g} s")
