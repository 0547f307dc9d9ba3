"""Lists, runs and dead-letters orders that wait for their next attempt.

Functions raise `QueueUnavailable` when Redis cannot be used right now. Calling again is safe.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.orders.order_state import RetryEntry
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.dead_letter_json import json_time
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.retries import Retries, TotalRetrySurvey
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
    selection: RetrySelection,
    *,
    limit: int,
    on_progress: Callable[[int, int], None] = lambda _examined, _total: None,
) -> FoundRetries:
    """Find the soonest retries that match, at most `limit`."""
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


async def survey(
    backends: Backends,
    selection: RetrySelection,
    *,
    on_progress: Callable[[int, int], None] = lambda _examined, _total: None,
) -> TotalRetrySurvey:
    """Find the retries that match, and count them by reason."""
    async with _open(backends) as retries:
        total = await retries.count()
        return await retries.survey(selection, on_progress=lambda examined: on_progress(examined, total))


async def run_now(
    backends: Backends, found: TotalRetrySurvey, *, on_progress: Callable[[int], None] = lambda _: None
) -> int:
    """Make the found retries due now. Returns how many still waited. Workers read them within two seconds."""
    async with _open(backends) as retries:
        return await retries.run_now(found, on_progress=on_progress)


async def dead_letter(
    backends: Backends, found: TotalRetrySurvey, actor: str, *, on_progress: Callable[[int], None] = lambda _: None
) -> int:
    """Dead-letter the found retries. Returns how many still waited. The dead letters include the actor."""
    async with _open(backends) as retries:
        return await retries.dead_letter(found, actor, on_progress=on_progress)


@asynccontextmanager
async def _open(backends: Backends) -> AsyncIterator[Retries]:
    async with control_client(backends.redis_url) as client:
        yield Retries(client, layout_reader(client, backends.stream), backends.group)


def as_object(entry: RetryEntry, source: str) -> dict[str, Any]:
    """Convert a retry of a source for JSON."""
    return {
        "id": entry.entry_id,
        "source": source,
        "order_id": entry.order_id,
        "next_try_at": json_time(entry.next_try_at),
        "attempt": entry.attempt,
        "reason": entry.reason,
        "error": entry.error,
        "announced_at": json_time(entry.announced_at),
    }
