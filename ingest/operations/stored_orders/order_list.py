"""Lists stored orders that match a filter, over one or several sources."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ingest.domain.errors import StoreTooSlow
from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.operations.backends import Backends
from ingest.store.connections.pool import Pool
from ingest.store.orders.order_reading import OrderReader

MOST_LISTED = 500
"""The largest page."""

_COUNT_SECONDS = 5.0
# For a command, whose user may wait for a scan of the table.
_PATIENT = 600.0


class ListsOrders(Protocol):
    """The stored orders of one source, implemented by `Orders` and `OrderReader`."""

    async def page(self, selection: OrderFilter, after: OrderPosition, limit: int) -> list[dict[str, Any]]:
        """Return the next matching orders after this position."""


@dataclass(frozen=True, slots=True)
class OrderPage:
    """A page of stored orders.

    Attributes:
        orders: each with `source`, the values from its document in `order`, and the others in `row`, as JSON values.
        next: the position after which the next page begins, with its source. None after the last page.
    """

    orders: Sequence[Mapping[str, Any]]
    next: tuple[str, OrderPosition] | None


async def list_page(
    sources: Mapping[str, ListsOrders], selection: OrderFilter, after: tuple[str, OrderPosition] | None, limit: int
) -> OrderPage:
    """Return the next stored orders that match, source by source.

    Args:
        sources: the sources to list, by name.
        selection: the filter.
        after: `OrderPage.next` of the previous page. None for the first one.
        limit: most orders of a page.

    Raises:
        StoreTooSlow: too many rows had to be examined.
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    found: list[dict[str, Any]] = []
    first, position = ("", OrderPosition()) if after is None else after
    for name in sorted(sources):
        if name < first:
            continue
        start = position if name == first else OrderPosition()
        # One more than fits shows that there is another page.
        rows = await sources[name].page(selection, start, limit + 1 - len(found))
        found += [{"source": name, **row} for row in rows]
        if len(found) > limit:
            last = found[limit - 1]
            return OrderPage(found[:limit], (last["source"], position_of(last, selection)))
    return OrderPage(found, None)


def position_of(row: Mapping[str, Any], selection: OrderFilter) -> OrderPosition:
    """Return the position of a listed order."""
    stored_at = row["row"]["ingested_at"].isoformat() if selection.is_by_time else None
    return OrderPosition(row["order"]["id"], stored_at)


async def list_orders(
    sources: Sequence[Backends], selection: OrderFilter, limit: int
) -> AsyncGenerator[Mapping[str, Any], None]:
    """Yield the stored orders of these sources that match, at most `limit`.

    Raises:
        StoreTooSlow: too many rows had to be examined.
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    async with Pool.open(sources[0].postgres_dsn, size=1, timeout=_PATIENT) as pool:
        readers = {each.source: OrderReader(pool, each.source) for each in sources}
        after: tuple[str, OrderPosition] | None = None
        while limit > 0:
            page = await list_page(readers, selection, after, min(limit, MOST_LISTED))
            for row in page.orders:
                yield row
            limit -= len(page.orders)
            if (after := page.next) is None:
                return


async def count_orders(backends: Backends, selection: OrderFilter) -> int | None:
    """Count the stored orders of a source that match. None if counting takes more than five seconds.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    async with Pool.open(backends.postgres_dsn, size=1, timeout=_COUNT_SECONDS) as pool:
        try:
            return await OrderReader(pool, backends.source).count(selection)
        except StoreTooSlow:
            return None


async def id_pages(
    reader: OrderReader, selection: OrderFilter, after: OrderPosition | None = None, limit: int = MOST_LISTED
) -> AsyncGenerator[list[OrderPosition], None]:
    """Yield the positions of all stored orders of a source that match, pages of at most `limit`, from a position on.

    An order that changes while the pages are read may move behind them if the filter `is_by_time` has no end.
    """
    position = after or OrderPosition()
    while page := await reader.ids(selection, position, limit):
        yield page
        position = page[-1]
