"""Finds orders that wait for their next attempt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingest.domain.deliveries.selection import Selection
from ingest.domain.orders.order_state import RetryEntry
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.dead_letter_parts import Unavailable, reached_of
from ingest.operations.failed_orders.entries import retries_of
from ingest.queue.operate.failed.partition_retries import PartitionRetries
from ingest.queue.redis.connection import control_client


@dataclass(frozen=True, slots=True)
class FoundRetries:
    """The retries that a search found.

    Attributes:
        entries: each with its source, sorted by due time.
        has_more: whether more retries match than the limit allows.
        missing: orders of the selection without a matching retry. Empty if `has_more` is true, or a partition is unavailable.
        unavailable: the partitions that cannot be read, each with the reason.
    """

    entries: Sequence[tuple[str, RetryEntry]]
    has_more: bool
    missing: frozenset[str]
    unavailable: Unavailable


async def find(
    sources: Sequence[Backends],
    selection: Selection,
    *,
    limit: int,
    on_progress: Callable[[int, int], None] = lambda _examined, _total: None,
) -> FoundRetries:
    """Find the soonest retries that match, at most `limit`.

    Raises:
        QueueUnavailable: no server can be used.
    """
    found: list[tuple[str, RetryEntry]] = []
    examined = 0
    async with control_client(sources[0].redis_url) as client:
        retries = {each.source: (each.stream, retries_of(client, each)) for each in sources}
        opened, unavailable = await reached_of(retries, PartitionRetries.count)
        total = sum([await part.count() for part in opened.values()])
        for (source, _), each in opened.items():
            matching = 0
            async for page in each.pages(selection.filter.unlisted_fields):
                entries = [entry for entry in page.entries if selection.matches(entry)]
                found += [(source, entry) for entry in entries]
                matching += len(entries)
                examined += len(page.entries)
                on_progress(examined, total)
                if matching > limit:
                    break
            # With many sources and partitions, those that are too late for the result are not kept.
            found = sorted(found, key=lambda each: each[1].next_try_at)[: limit + 1]
    if len(found) > limit:
        return FoundRetries(found[:limit], has_more=True, missing=frozenset(), unavailable=unavailable)
    missing = selection.ids.difference(entry.order_id for _, entry in found)
    return FoundRetries(found, has_more=False, missing=frozenset() if unavailable else missing, unavailable=unavailable)
