"""Finds orders in the queues and the database of several sources.

An order moves from the queue to the database, so the queue is searched first.
"""

from collections.abc import Callable, Sequence

from ingest.domain.orders.order_state import OrderState, QueueEntry
from ingest.operations.backends import Backends
from ingest.queue.operate.order_search import MOST_ORDERS, OrderSearch, most_of_each
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.redis.connection import control_client
from ingest.store.connections.pool import Pool
from ingest.store.orders.order_reading import OrderReader, StoredState

QUICKLY_SEARCHED = 10_000
"""Entries that are searched in less than 0.1 s, or several times as long on a busy machine."""


async def locate(
    sources: Sequence[Backends],
    order_ids: Sequence[str],
    *,
    most: int = 0,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[OrderState]:
    """Find orders of each source, in its queue and in the database.

    Returns a state for each source and ID, sorted by ID as given, then by source.

    Args:
        sources: the sources, all in the same Redis and database.
        order_ids: valid order IDs.
        most: about how many entries of all queues are searched for `MOST_ORDERS` orders. The share of each lane, retry set and
            stream of dead letters is the same, and a state reports if that is not all of it. 0 searches all.
        on_progress: called with the number of entries of one queue examined so far.

    Raises:
        Unavailable: Redis or PostgreSQL cannot be used right now.
    """
    states: dict[str, list[OrderState]] = {order_id: [] for order_id in order_ids}
    dsn = sources[0].postgres_dsn
    async with control_client(sources[0].redis_url) as client, Pool.open(dsn, size=1) as pool:
        searches = [OrderSearch(client, layout_reader(client, each.stream), each.group) for each in sources]
        for start in range(0, len(order_ids), MOST_ORDERS):
            some = order_ids[start : start + MOST_ORDERS]
            sizes = [await search.sizes(some) for search in searches] if most else []
            share = most_of_each([size for each in sizes for size in each], most) if most else 0
            for number, (each, search) in enumerate(zip(sources, searches, strict=True)):
                examined = 0

                def note(count: int) -> None:
                    nonlocal examined
                    examined = count
                    on_progress(count)

                searched = await search.find(some, most=share, on_progress=note)
                problem = "" if searched.is_complete else _searched_in_part(examined, sum(sizes[number]))
                stored = await OrderReader(pool, each.source).find(some)
                for order_id in some:
                    entries = searched.entries.get(order_id, ())
                    states[order_id].append(order_state(each.source, order_id, entries, stored[order_id], problem))
    return [state for of_one in states.values() for state in of_one]


def order_state(
    source: str, order_id: str, entries: Sequence[QueueEntry], stored: StoredState, problem: str
) -> OrderState:
    """The state of an order. `problem` is the reason why the queue was not searched completely, or empty."""
    return OrderState(source, order_id, stored.row, stored.erased_at, entries, searched=not problem, problem=problem)


def _searched_in_part(examined: int, total: int) -> str:
    # Entries may have been added during the search.
    return f"searched {examined:,} of {max(examined, total):,} entries of the queue, because it is long"
