"""Opens the dead letters of several sources by their partitions, and reads them as one sequence.

All partitions are read, or only those whose server can be used. The others are reported.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.domain.partitions import Layout
from ingest.operations.backends import Backends
from ingest.queue.operate.dead_letters import DeadLetterPage, DeadLetters
from ingest.queue.operate.partitioned.dead_letters import PartitionedDeadLetters
from ingest.queue.operate.partitioned.queue_parts import ReadLayout, layout_reader
from ingest.queue.redis.connection import control_client

if TYPE_CHECKING:
    from ingest.queue.operate.dead_letter_pages import Row

Part = tuple[str, str]
"""A source and the queue of one of its partitions."""

Pages = AsyncGenerator[tuple[str, DeadLetterPage], None]
"""Pages of dead letters, each with its source."""

Unavailable = dict[Part, str]
"""The partitions that cannot be read, each with the reason."""


@asynccontextmanager
async def open_all(sources: Sequence[Backends]) -> AsyncIterator[dict[Part, DeadLetters]]:
    """Open the dead letters of each partition of each source, with the same connections, because sources share one Redis.

    Raises:
        QueueUnavailable: the number of partitions of a source cannot be read.
    """
    async with control_client(sources[0].redis_url) as client:
        opened: dict[Part, DeadLetters] = {}
        for each in sources:
            opened |= await _parts(client, each, layout_reader(client, each.stream))
        yield opened


@asynccontextmanager
async def open_reachable(sources: Sequence[Backends]) -> AsyncIterator[tuple[dict[Part, DeadLetters], Unavailable]]:
    """As `open_all`, for the partitions whose server can be used.

    If the number of partitions cannot be read, it is the configured one.

    Raises:
        QueueUnavailable: no server can be used.
    """
    async with control_client(sources[0].redis_url) as client:
        opened: dict[Part, DeadLetters] = {}
        unavailable: Unavailable = {}
        for each in sources:
            try:
                opened |= await _parts(client, each, layout_reader(client, each.stream))
            except QueueUnavailable as error:
                assumed = Layout(each.stream, each.partitions)
                unavailable[each.source, each.stream] = f"its partitions are not known: {error}"
                opened |= await _parts(client, each, _known(assumed))
        counts = await asyncio.gather(*(part.count() for part in opened.values()), return_exceptions=True)
        for part, found in zip([*opened], counts, strict=True):
            if isinstance(found, QueueUnavailable):
                unavailable[part] = str(found)
                del opened[part]
                if not opened:
                    raise found
            elif isinstance(found, BaseException):
                raise found
        yield opened, unavailable


async def _parts(client: Redis, source: Backends, layout: ReadLayout) -> dict[Part, DeadLetters]:
    parts = await PartitionedDeadLetters(client, layout, group=source.group).by_queue()
    return {(source.source, queue): part for queue, part in parts.items()}


def _known(layout: Layout) -> ReadLayout:
    async def read() -> Layout:
        return layout

    return read


async def newest_of_all(parts: Mapping[Part, AsyncGenerator[DeadLetterPage, None]], unavailable: Unavailable) -> Pages:
    """Merge the dead letters of several partitions, each newest first. It holds one page of each partition.

    A partition whose server cannot be used any more is added to the unavailable ones.
    """
    async with AsyncExitStack() as stack:
        for pages in parts.values():
            await stack.enter_async_context(aclosing(pages))
        held: dict[Part, Sequence[Row]] = dict.fromkeys(parts, ())
        while held:
            for part in [part for part, rows in held.items() if not rows]:
                try:
                    page = await anext(parts[part], None)
                except QueueUnavailable as error:
                    unavailable[part], page = str(error), None
                if page is None:
                    del held[part]
                else:
                    held[part] = page.rows
                    yield part[0], DeadLetterPage((), page.examined)
            if held and all(held.values()):
                part = max(held, key=lambda each: held[each][0][0].dead_at)
                newest, *held[part] = held[part]
                yield part[0], DeadLetterPage([newest], 0)


async def one_after_another(parts: Mapping[Part, AsyncGenerator[DeadLetterPage, None]]) -> Pages:
    """Read the partitions one after another."""
    for (source, _), pages in parts.items():
        async with aclosing(pages):
            async for page in pages:
                yield source, page


async def paced(pages: Pages, rate: float) -> Pages:
    """Read at most `rate` dead letters per second."""
    begun, count = time.monotonic(), 0
    async with aclosing(pages):
        async for source, page in pages:
            yield source, page
            count += len(page.rows)
            await asyncio.sleep(count / rate - (time.monotonic() - begun))
