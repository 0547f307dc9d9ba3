"""Opens the dead letters of several sources by their partitions, and reads them as one sequence.

Only partitions whose server can be used are read. The others are reported.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ingest.domain.errors import QueueUnavailable
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.entries import dead_letters_of
from ingest.queue.operate.failed.dead_letter_pages import DeadLetterPage
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.queue_parts import Reached
from ingest.queue.redis.connection import control_client

if TYPE_CHECKING:
    from ingest.queue.operate.failed.dead_letter_pages import Row

Part = tuple[str, str]
"""A source and the queue of one of its partitions."""

Pages = AsyncGenerator[tuple[str, DeadLetterPage], None]
"""Pages of dead letters, each with its source."""

Unavailable = dict[Part, str]
"""The partitions that cannot be read, each with the reason."""

_Opened = TypeVar("_Opened")


class _Reaching(Protocol[_Opened]):
    """`DeadLetters` or `Retries`."""

    async def reached(self, call: Callable[[_Opened], Awaitable[Any]]) -> Reached[_Opened, Any]:
        """See `QueueParts.reached`."""


@asynccontextmanager
async def open_reachable(
    sources: Sequence[Backends],
) -> AsyncIterator[tuple[dict[Part, PartitionDeadLetters], Unavailable]]:
    """Open the dead letters of each partition whose server can be used, with the same connections, because sources share one Redis.

    If the number of partitions of a source cannot be read, it is the configured one.

    Raises:
        QueueUnavailable: no server can be used.
    """
    async with control_client(sources[0].redis_url) as client:
        yield await reached_of(
            {each.source: (each.stream, dead_letters_of(client, each)) for each in sources}, PartitionDeadLetters.count
        )


async def reached_of(
    sources: Mapping[str, tuple[str, _Reaching[_Opened]]], call: Callable[[_Opened], Awaitable[object]]
) -> tuple[dict[Part, _Opened], Unavailable]:
    """Return the partitions of several sources whose server can be used, and the others.

    Args:
        sources: the queue of each source, and its dead letters or retries.
        call: shows whether a partition can be used.

    Raises:
        QueueUnavailable: no server can be used.
    """
    opened: dict[Part, _Opened] = {}
    unavailable: Unavailable = {}
    errors: list[QueueUnavailable] = []
    for source, (stream, entries) in sources.items():
        try:
            reached = await entries.reached(call)
        except QueueUnavailable as error:
            errors.append(error)
            unavailable[source, stream] = str(error)
        else:
            opened |= {(source, queue): part for queue, (part, _) in reached.found.items()}
            unavailable |= {(source, each.queue): each.reason for each in reached.missing}
    if not opened:
        raise errors[0]
    return opened, unavailable


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
