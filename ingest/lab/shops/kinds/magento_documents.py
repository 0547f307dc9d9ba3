"""Orders as Magento's REST API writes them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal

from ingest.lab.shops.kinds.kind import Document
from ingest.lab.shops.orders import ZERO, Line, ShopOrder

STATES = {
    "pending": ("new", "pending"),
    "paid": ("processing", "processing"),
    "shipped": ("complete", "complete"),
    "cancelled": ("canceled", "canceled"),
}


_IN_BASE_CURRENCY = (
    *("discount_amount", "discount_tax_compensation_amount", "grand_total", "subtotal", "tax_amount", "total_due"),
    *("shipping_amount", "shipping_discount_amount", "shipping_tax_amount"),
)


def magento_order(order: ShopOrder) -> Document:
    """Return an order. Keys without a value are missing."""
    state, status = STATES[order.status]
    charged, before = order.charged, order.amount(order.shipping)
    rows = [order.amount(line.subtotal).ex_tax for line in order.lines]
    discount = sum((line.discount for line in order.lines), ZERO) + order.shipping_discount
    # The tax within discounts, if prices contain tax.
    compensation = order.products.inc_tax - order.products.tax - sum(rows, ZERO) + discount - order.shipping_discount
    shipping_ex_tax = order.shipping_amount.ex_tax
    shipping_compensation = shipping_ex_tax - before.ex_tax + order.shipping_discount
    document: Document = {
        "base_currency_code": order.currency,
        "base_to_order_rate": 1,
        "base_to_global_rate": 1,
        "created_at": magento_time(order.placed_at),
        "customer_email": "ada@example.com",
        "customer_is_guest": int(order.customer is None),
        "discount_amount": -float(discount),
        "discount_tax_compensation_amount": float(compensation),
        "entity_id": order.number,
        "global_currency_code": order.currency,
        "grand_total": float(charged.inc_tax),
        "increment_id": f"{order.number:09}",
        "is_virtual": int(order.country is None),
        "order_currency_code": order.currency,
        "protect_code": f"{order.number:032x}",
        "shipping_amount": float(before.ex_tax),
        "shipping_description": "Flat Rate - Fixed",
        "shipping_discount_amount": float(order.shipping_discount),
        "shipping_discount_tax_compensation_amount": float(shipping_compensation),
        "shipping_tax_amount": float(order.shipping_amount.tax),
        "state": state,
        "status": status,
        "store_currency_code": order.currency,
        "store_id": 1,
        "subtotal": float(sum(rows, ZERO)),
        "tax_amount": float(charged.tax),
        "total_due": float(charged.inc_tax) if order.status == "pending" else 0,
        "total_item_count": len(order.lines),
        "total_qty_ordered": _number(sum((line.quantity for line in order.lines), Decimal(0))),
        "updated_at": magento_time(order.updated_at),
        "items": list(_items(order)),
        "billing_address": {"address_type": "billing", "country_id": order.country or "GB", "firstname": "Ada"},
        "payment": {"method": "checkmo", "amount_ordered": float(charged.inc_tax), "additional_information": []},
        "status_histories": [],
        "extension_attributes": {
            "shipping_assignments": _assignments(order),
            "gw_price": float(order.wrapping_amount.ex_tax),
            "gw_tax_amount": float(order.wrapping_amount.tax),
        },
    }
    # The shop and the order use the same currency.
    document |= {f"base_{name}": document[name] for name in _IN_BASE_CURRENCY}
    # Keys without a value are missing.
    if order.customer is not None:
        document["customer_id"] = order.customer
    if order.refunds:
        document["total_refunded"] = float(order.refunded.inc_tax)
    if order.status == "cancelled":
        document["total_canceled"] = float(charged.inc_tax)
    return document


def _assignments(order: ShopOrder) -> list[Document]:
    if order.country is None:
        return []
    address = {"address_type": "shipping", "country_id": order.country, "firstname": "Ada"}
    return [{"shipping": {"address": address, "method": "flatrate_flatrate"}, "items": []}]


def _items(order: ShopOrder) -> Iterable[Document]:
    for index, line in enumerate(order.lines):
        item = _item(order, index, line)
        yield item
        if (order.number + index) % 7 == 0:
            # The variant that was sold below the configurable product, without a price.
            child = {name: item[name] for name in ("created_at", "order_id", "qty_ordered", "sku", "store_id")}
            none = dict.fromkeys(("price", "row_total", "tax_amount", "discount_amount"), 0)
            item["product_type"] = "configurable"
            yield {
                **child,
                **none,
                "item_id": item["item_id"] + 500,
                "name": f"{line.title} - variant",
                "parent_item_id": item["item_id"],
                "product_type": "simple",
            }


def _item(order: ShopOrder, index: int, line: Line) -> Document:
    row, after, price = order.amount(line.subtotal), order.line_amount(line), order.amount(line.unit_price)
    refunded = sum((refund.quantity for refund in order.refunds if refund.line == index), Decimal(0))
    fixed_tax = order.fee + order.duty if index == 0 else ZERO
    return {
        "created_at": magento_time(order.placed_at),
        "discount_amount": float(line.discount),
        "discount_tax_compensation_amount": float(after.ex_tax - row.ex_tax + line.discount),
        "is_qty_decimal": int(line.quantity != int(line.quantity)),
        "item_id": order.number * 1000 + index,
        "name": line.title,
        "order_id": order.number,
        "price": float(price.ex_tax),
        "price_incl_tax": float(price.inc_tax),
        "original_price": float(price.ex_tax),
        "product_type": "simple",
        "qty_canceled": _number(line.quantity) if order.status == "cancelled" else 0,
        "qty_ordered": _number(line.quantity),
        "qty_invoiced": 0 if order.status in {"pending", "cancelled"} else _number(line.quantity),
        "qty_refunded": _number(refunded),
        "qty_shipped": _number(line.quantity) if order.status == "shipped" else 0,
        "row_total": float(row.ex_tax),
        "row_total_incl_tax": float(row.inc_tax),
        "sku": line.sku or f"item-{index}",
        "store_id": 1,
        "tax_amount": float(after.tax),
        "tax_percent": float(order.tax_rate * 100),
        "weee_tax_applied_row_amount": float(fixed_tax),
    }


def magento_time(moment: datetime) -> str:
    """Write a time, which is UTC without a zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _number(quantity: Decimal) -> int | float:
    return int(quantity) if quantity == int(quantity) else float(quantity)
