"""Previews which fields of stored orders a fetch would change. Changes nothing."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ingest.domain.errors import Fault, TransformFailed
from ingest.domain.orders.field_differences import ChangePreview, FieldSummary, UnusableOrder
from ingest.domain.orders.order import InvalidDocument
from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.plain_order import StorableOrder
from ingest.operations.backends import Backends
from ingest.operations.stored_orders.order_list import count_orders
from ingest.store.connections.pool import Pool
from ingest.store.orders.documents import Documents, DocumentSelection
from ingest.store.orders.order_reading import OrderReader

FetchOrders = Callable[[str], Awaitable[tuple[StorableOrder, ...]]]
"""Requests an order from the external API, and returns the orders that a worker would store. Raises as `Decode`, and `Fault`."""

_PATIENT = 600.0


@dataclass(slots=True)
class RefetchPreview:
    """The expected effect of fetching orders again.

    Attributes:
        total: stored orders that match. None if counting takes too long.
        fetched: orders of the sample that were requested.
        changed: orders of the sample that would change.
        fields: the fields that would change in the sample.
        failures: orders of the sample that cannot be fetched or mapped.
    """

    total: int | None
    fetched: int = 0
    changed: int = 0
    fields: FieldSummary = field(default_factory=FieldSummary)
    failures: list[UnusableOrder] = field(default_factory=list)

    def result(self) -> ChangePreview:
        """Return the preview as it is stored and shown."""
        return ChangePreview(self.total, self.fetched, self.changed, self.fields.changed(), self.failures)

    def shown_orders(self) -> list[str]:
        """Return the orders of which the preview contains something."""
        examples = [example.order_id for found in self.fields.examples.values() for example in found]
        return [*dict.fromkeys([*examples, *(each.order_id for each in self.failures)])]


async def preview_steps(
    backends: Backends, selection: OrderFilter, fetch: FetchOrders, sample: int
) -> AsyncGenerator[RefetchPreview, None]:
    """Fetch a sample of the stored orders that match, and compare each with its row. Yield the same preview after each order.

    Args:
        backends: the database, and the source of the orders.
        selection: the orders.
        fetch: requests an order.
        sample: most orders to request.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    preview = RefetchPreview(await count_orders(backends, selection))
    yield preview
    async with (
        Pool.open(backends.postgres_dsn, size=1, timeout=_PATIENT) as pool,
        Documents.open(backends.postgres_dsn, DocumentSelection(), backends.source) as documents,
    ):
        for position in await OrderReader(pool, backends.source).ids(selection, OrderPosition(), sample):
            await _add(preview, position.order_id, fetch, documents)
            preview.fetched += 1
            yield preview


async def _add(preview: RefetchPreview, order_id: str, fetch: FetchOrders, documents: Documents) -> None:
    try:
        orders = await fetch(order_id)
    except (Fault, InvalidDocument, TransformFailed) as error:
        preview.failures.append(UnusableOrder(order_id, str(error)))
        return
    differing = await documents.differences(_rows(orders))
    preview.changed += bool(differing)
    for name, differences in differing.items():
        preview.fields.add(name, differences)


def _rows(orders: Sequence[StorableOrder]) -> list[OrderRow]:
    now = datetime.now(UTC)
    return [OrderRow.of(order, now, 1, now.timestamp()) for order in orders]
