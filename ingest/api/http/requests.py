"""The state of a request, and its body, which is read within limits."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from aiohttp import web
from multidict import MultiMapping

from ingest.api.http.json_responses import JSON
from ingest.api.http.memory_budget import RequestState
from ingest.api.http.parameters import Parameters
from ingest.api.http.problems import Problem

_T = TypeVar("_T")
# Seconds between two looks at whether the client is still connected.
_CONNECTED_EVERY = 0.25


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The limits on a body.

    Attributes:
        size: Bytes of a body that is read whole.
        seconds: The time for a body that is read whole, or for each batch of a streamed body.
    """

    size: int
    seconds: float


STATE: web.RequestKey[RequestState] = web.RequestKey("state", RequestState)


async def while_connected(request: web.Request, reading: Awaitable[_T]) -> _T:
    """Await something that only reads, and cancel it soon after the client has disconnected.

    Raises:
        ConnectionResetError: The client has disconnected.
    """
    task = asyncio.ensure_future(reading)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_CONNECTED_EVERY)
            if request.transport is None:
                raise ConnectionResetError
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def read_body(request: web.Request, limits: BodyLimits) -> bytes:
    """The whole body.

    Raises:
        Problem: 408, 413, 415 or 503.
    """
    refuse_encoding(request.headers)
    content = request.content
    if content.is_eof():
        # All of it came together with the header.
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
    with request[STATE].receiving():
        while chunk := await request.content.readany():
            body += chunk
            if len(body) > limits.size:
                raise too_large(limits.size)
    return bytes(body)


async def json_body(request: web.Request, limits: BodyLimits, kind: type[_T]) -> _T:
    """Read and decode the JSON body of a request without a query.

    Raises:
        Problem: 400, 408, 413, 415 or 422.
    """
    Parameters(request, ())
    if request.content_type != JSON:
        raise Problem(415, "content_type", f"the body must be {JSON}")
    return decoded(await read_body(request, limits), kind)


def decoded(body: bytes, kind: type[_T]) -> _T:
    """Decode the JSON of a body to this type.

    Raises:
        Problem: 400 or 422.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid_body", str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "invalid_json", "the body is not JSON in UTF-8") from error


def refuse_encoding(headers: MultiMapping[str]) -> None:
    """Refuse a compressed body, because a small one could become a huge one here.

    Raises:
        Problem: 415.
    """
    for name, permitted in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
        codings = {coding.strip().lower() for value in headers.getall(name, ()) for coding in value.split(",")}
        if codings - {permitted}:
            detail = "compressed bodies are not accepted"
            raise Problem(415, "content_encoding", detail, headers={"Accept-Encoding": "identity"})


def too_large(limit: int) -> Problem:
    """413."""
    return Problem(413, "body_too_large", f"the body is larger than {limit:,} bytes", limit=limit)


def too_slow(seconds: float) -> Problem:
    """408."""
    return Problem(408, "body_too_slow", f"the body has not come within {seconds:g} s")
