"""Reads order IDs from NDJSON as it arrives, in batches, so that only one batch is in memory."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Annotated

import msgspec
from aiohttp import web

from ingest.api.http.problems import Problem
from ingest.api.http.requests import STATE, BodyLimits, too_slow
from ingest.domain.deliveries.announcement import Announcement, InvalidAnnouncement
from ingest.domain.orders.clean_json import clean_json
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.domain.orders.order_id import LITERAL, looks_like_json

CONTENT_TYPE = "application/x-ndjson"
MOST_LINES = 100_000
# Orders that are sent to Redis in one step.
BATCH = 500
_LINE_SIZE = 1024
# Bytes of a body that are divided into lines together.
_PIECE = 16 * 1024
# The memory of lines is this multiple of their bytes, until Redis has their orders.
_COST = 8
# Some editors write it at the start of a file.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A usual ID as a JSON string or as plain text, the content of nearly every line.
_ID = re.compile(rb'[ \t]*(?:"([A-Za-z0-9._:-]+)"|([0-9]+|(?!' + LITERAL.encode() + rb")[A-Za-z0-9._:-]+))[ \t\r]*")

Batch = Sequence[str | Announcement]


class NdjsonLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A line that is an object.

    Attributes:
        order_id: The order's ID.
        origin: The program that enqueues it, up to 100 printable characters.
        source: The same, as earlier clients name it.
    """

    order_id: str
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    source: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None


_decode: Callable[[bytes], NdjsonLine | str] = msgspec.json.Decoder(NdjsonLine | str).decode


class InvalidLine(Problem):
    """A line that announces no order. Lines are counted from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(422, "invalid_line", f"line {line}: {problem}", line=line)


class Lines:
    """The lines of one body.

    Args:
        request: Contains the body.
        limits: The limits of the body.
    """

    def __init__(self, request: web.Request, limits: BodyLimits) -> None:
        self._content = request.content
        self._state = request[STATE]
        self._seconds = limits.seconds
        # Bytes that were read, of all pieces, of the last one, and of those whose orders are not enqueued yet.
        self._read = self._last = self._unsent = 0
        self._rest = b""
        self._line = 0
        self._digest = blake2b(digest_size=16)

    async def fingerprint(self) -> str:
        """Read the rest of the body, and return the fingerprint of all of it."""
        with suppress(InvalidLine):
            async for _ in self.batches():
                pass
        return self._digest.hexdigest()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """The orders in lists of `BATCH`, however the body is divided. Orders before an invalid line are returned before the error.

        Raises:
            InvalidLine: A line is invalid.
            Problem: 408 if a batch takes too long to come.
        """
        batch: list[str | Announcement] = []
        lines = self._lines()
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    is_last = not await self._fill(lines, batch)
            except TimeoutError:
                raise too_slow(self._seconds) from None
            except InvalidLine:
                if batch:
                    yield batch
                raise
            if batch:
                yield batch
            if is_last:
                return
            batch = []
            # The rest of the last piece belongs to the next batch.
            self._unsent = self._last
            self._hold()

    async def _fill(self, lines: AsyncIterator[bytes], batch: list[str | Announcement]) -> bool:
        """Add orders to a batch until it is full, and return False if there are no more."""
        async for line in lines:
            if order := self._order(line):
                batch.append(order)
                if len(batch) == BATCH:
                    return True
        return False

    async def _lines(self) -> AsyncIterator[bytes]:
        while piece := await self._next_piece():
            self._digest.update(piece)
            *whole, self._rest = (self._rest + piece).split(b"\n")
            for line in whole:
                yield line
            if len(self._rest) > _LINE_SIZE:
                raise InvalidLine(self._line + 1, f"a line has at most {_LINE_SIZE:,} bytes")
        if self._rest:
            yield self._rest

    async def _next_piece(self) -> bytes:
        with self._state.receiving():
            piece = await self._content.read(_PIECE)
        self._last = len(piece)
        self._read += self._last
        self._unsent += self._last
        self._hold()
        return piece

    def _hold(self) -> None:
        """Hold the memory of the orders, and of the part of the body that has come and was not read yet."""
        self._state.hold(_COST * self._unsent + self._content.total_bytes - self._read)

    def _order(self, line: bytes) -> str | Announcement | None:
        self._line += 1
        if self._line > MOST_LINES:
            raise InvalidLine(self._line, f"a body has at most {MOST_LINES:,} lines")
        if self._line == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        try:
            if match := _ID.fullmatch(line):
                return parse_order_id((match[1] or match[2]).decode())
            return _parsed(line)
        except (InvalidOrderId, InvalidAnnouncement, msgspec.ValidationError) as error:
            raise InvalidLine(self._line, str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidLine(self._line, "a line is an order ID, or a JSON object with order_id") from error


def _parsed(line: bytes) -> str | Announcement | None:
    if not line.strip():
        return None
    if len(line) > _LINE_SIZE:
        raise InvalidAnnouncement(f"a line has at most {_LINE_SIZE:,} bytes")
    text = line.strip(b" \t\r").decode()
    if not looks_like_json(text):
        return parse_order_id(text)
    given = _decode(clean_json(text.encode()))
    if isinstance(given, str):
        return parse_order_id(given)
    origin = given.origin or given.source
    return parse_order_id(given.order_id) if origin is None else Announcement(given.order_id, origin=origin)
