"""Calls over several partitions, sent concurrently."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from ingest.queue.consume.partitioned.partition_set import Partition

_T = TypeVar("_T")
Share = tuple[Partition, int]
"""A partition, and how many entries it may give."""


async def together(calls: Iterable[Awaitable[_T]]) -> list[_T]:
    """Return the results of concurrent calls. An error is raised when all calls have ended, so that none continues unobserved."""
    calls = list(calls)
    if len(calls) == 1:
        return [await calls[0]]  # without a task
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]  # without exceptions


async def take_in_rounds(
    partitions: Iterable[Partition], room: int, take: Callable[[Sequence[Share]], Awaitable[Sequence[int]]]
) -> None:
    """Obtain up to `room` entries from partitions, in rounds, until there is no room or no partition may have more.

    Args:
        partitions: in the order in which they get room.
        room: for all entries.
        take: obtains up to a number of entries from each partition, and returns how many it has received from each.
    """
    waiting = list(partitions)
    while room > 0 and waiting:
        shares = divide(room, waiting)
        waiting = waiting[len(shares) :]
        for (partition, share), taken in zip(shares, await take(shares), strict=True):
            room -= taken
            if taken >= share:
                waiting.append(partition)


def divide(room: int, partitions: Sequence[Partition]) -> list[Share]:
    """Divide room among partitions, among the first ones if it is smaller than their number."""
    asked = partitions[:room]
    least, rest = divmod(room, len(asked))
    return [(partition, least + (place < rest)) for place, partition in enumerate(asked)]
