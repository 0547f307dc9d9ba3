"""Finds orders that wait for their next attempt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingest.domain.deliveries.selection import Selection
from ingest.domain.orders.order_state import RetryEntry
from ingest.operations.backends import Backends
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.retries import Retries
from ingest.queue.redis.connection import control_client


@dataclass(frozen=True, slots=True)
class FoundRetries:
    """The retries that a search found.

    Attributes:
        entries: each with its source, sorted by due time.
        has_more: whether more retries match than the limit allows.
        missing: orders of the selection without a matching retry. Empty if `has_more` is true.
    """

    entries: Sequence[tuple[str, RetryEntry]]
    has_more: bool
    missing: frozenset[str]


async def find(
    sources: Sequence[Backends],
    selection: Selection,
    *,
    limit: int,
    on_progress: Callable[[int, int], None] = lambda _examined, _total: None,
) -> FoundRetries:
    """Find the soonest retries that match, at most `limit`.

    Raises:
        QueueUnavailable: Redis cannot be used right now.
    """
    found: list[tuple[str, RetryEntry]] = []
    examined = 0
    async with control_client(sources[0].redis_url) as client:
        parts = [
            (each.source, part)
            for each in sources
            for part in (await Retries(client, layout_reader(client, each.stream), each.group).by_queue()).values()
        ]
        total = sum([await part.count() for _, part in parts])
        for source, each in parts:
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
        return FoundRetries(found[:limit], has_more=True, missing=frozenset())
    missing = selection.ids.difference(entry.order_id for _, entry in found)
    return FoundRetries(found, has_more=False, missing=missing)
