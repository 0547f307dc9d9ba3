"""The table row of an order, for operators and scripts that try a mapping before it is used."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from ingest.domain.orders.order import Order


def row_of(order: Order) -> dict[str, Any]:
    """Return the columns of an order by name. Times are in UTC, and amounts are strings with every digit."""
    return {
        "order_id": order.id,
        "status": order.status,
        "placed_at": _utc(order.placed_at),
        "updated_at": None if order.updated_at is None else _utc(order.updated_at),
        "currency": order.currency,
        "total": str(order.total),
        "customer_id": order.customer_id,
        "country": order.country,
        "line_count": len(order.lines),
        "lines": [
            {
                "sku": line.sku,
                "quantity": line.quantity if isinstance(line.quantity, int) else str(line.quantity),
                "unit_price": str(line.unit_price),
                "description": line.description,
            }
            for line in order.lines
        ],
        "attributes": msgspec.json.decode(order.attributes_json()),
    }


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
