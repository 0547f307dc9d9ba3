"""Orders as Shopify's REST Admin API and its webhooks write them."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from ingest.lab.shops.kinds.kind import Document
from ingest.lab.shops.orders import ZERO, Line, Refund, ShopOrder

VERSION = "2026-07"
FIRST_ID = 6_200_407_290_000  # IDs of Shopify need 43 bits today
_ZONE = timezone(timedelta(hours=-5))
_APPLICATION = {"type": "discount_code", "code": "SPRING", "allocation_method": "across", "target_selection": "all"}
_APPLICATIONS = [  # the index of one is at each allocation
    {**_APPLICATION, "target_type": target, "value": "10.0", "value_type": "percentage"}
    for target in ("line_item", "shipping_line")
]
_FINANCIAL = {"pending": "pending", "paid": "paid", "shipped": "paid", "cancelled": "voided"}


def shop_time(moment: datetime) -> str:
    """Write a time in the zone of the shop, as the REST API does."""
    return moment.astimezone(_ZONE).isoformat()


def financial_status(order: ShopOrder) -> str:
    """Return the state of the payment."""
    if order.refunds and order.status != "pending":
        return "refunded" if order.refunded.inc_tax >= order.charged.inc_tax else "partially_refunded"
    return _FINANCIAL[order.status]


def line_id(order: ShopOrder, index: int) -> int:
    """Return the ID of a line."""
    return FIRST_ID * 2 + order.number * 1000 + index


def refunded_quantity(order: ShopOrder, index: int) -> int:
    """Return how many products of a line were refunded."""
    return int(sum((refund.quantity for refund in order.refunds if refund.line == index), Decimal(0)))


def current_total(order: ShopOrder) -> Decimal:
    """Return the total after refunds."""
    return order.charged.inc_tax - order.refunded.inc_tax


def _money(amount: Decimal, order: ShopOrder) -> Document:
    money = {"amount": str(amount), "currency_code": order.currency}
    return {"shop_money": money, "presentment_money": money}


def _tax_lines(tax: Decimal, order: ShopOrder) -> list[Document]:
    if not order.tax_rate:
        return []
    return [
        {
            "title": "VAT",
            "price": str(tax),
            "rate": float(order.tax_rate),
            "price_set": _money(tax, order),
            "channel_liable": False,
        }
    ]


def rest_order(order: ShopOrder) -> Document:
    """Return an order without the envelope of the REST API."""
    charged, shipping = order.charged, order.shipping_amount
    is_cancelled = order.status == "cancelled"
    subtotal = sum((line.subtotal - line.discount for line in order.lines), ZERO)
    amounts = {
        "total_price": charged.inc_tax,
        "total_line_items_price": sum((line.subtotal for line in sold_lines(order)), ZERO),
        "subtotal_price": subtotal + order.gift_wrap,
        "total_tax": charged.tax,
        "total_discounts": order.discounts,
        "current_total_price": current_total(order),
        "current_subtotal_price": subtotal + order.gift_wrap,
        "current_total_tax": charged.tax - order.refunded.tax,
        "current_total_discounts": order.discounts,
    }
    placed_at, updated_at = shop_time(order.placed_at), shop_time(order.updated_at)
    address = None if order.country is None else {"first_name": "Ada", "country_code": order.country, "address2": ""}
    # Gift wrapping is sold as a product, as the apps for it do.
    lines = [_line(order, index, line) for index, line in enumerate(sold_lines(order))]
    return {
        "id": FIRST_ID + order.number,
        "admin_graphql_api_id": f"gid://shopify/Order/{FIRST_ID + order.number}",
        "name": f"#{1000 + order.number}",
        "order_number": 1000 + order.number,
        "created_at": placed_at,
        "processed_at": placed_at,
        "updated_at": updated_at,
        "cancelled_at": updated_at if is_cancelled else None,
        "cancel_reason": "customer" if is_cancelled else None,
        "closed_at": None,
        "financial_status": financial_status(order),
        "fulfillment_status": "fulfilled" if order.status == "shipped" else None,
        "currency": order.currency,
        "presentment_currency": order.currency,
        "taxes_included": order.taxes_included,
        **{name: str(amount) for name, amount in amounts.items()},
        **{f"{name}_set": _money(amount, order) for name, amount in amounts.items()},
        "total_outstanding": str(charged.inc_tax if order.status == "pending" else ZERO),
        "total_tip_received": "0.00",
        "duties_included": False,
        "tax_exempt": False,
        "confirmed": True,
        "number": order.number,
        "source_name": "web",
        "original_total_duties_set": _money(order.duty, order) if order.duty else None,
        "current_total_duties_set": _money(order.duty, order) if order.duty else None,
        "original_total_additional_fees_set": _money(order.fee, order) if order.fee else None,
        "current_total_additional_fees_set": _money(order.fee, order) if order.fee else None,
        "email": "",
        "contact_email": None,
        "phone": None,
        "customer": None if order.customer is None else {"id": order.customer, "email": "", "tags": ""},
        "shipping_address": address,
        "billing_address": address,
        "line_items": lines,
        "shipping_lines": _shipping_lines(order),
        "tax_lines": _tax_lines(charged.tax, order) if charged.tax else [],
        "discount_codes": [{"code": "SPRING", "amount": str(order.discounts), "type": "percentage"}]
        if order.discounts
        else [],
        "discount_applications": _APPLICATIONS if order.discounts else [],
        "refunds": [_refund(order, refund) for refund in order.refunds],
        "note": None,
        "note_attributes": [{"name": "revision", "value": str(order.revision)}],
        "tags": "",
        "test": False,
        "total_shipping_price_set": _money(shipping.ex_tax if not order.taxes_included else shipping.inc_tax, order),
    }


def sold_lines(order: ShopOrder) -> Sequence[Line]:
    """Return the lines, including gift wrapping, which is sold as a product."""
    if not order.gift_wrap:
        return order.lines
    return (*order.lines, Line("GIFT-WRAP", "Gift wrapping", Decimal(1), order.gift_wrap))


def _line(order: ShopOrder, index: int, line: Line) -> Document:
    quantity, refunded = int(line.quantity), refunded_quantity(order, index)
    # The fee of a shop's own payment method has no SKU and no variant.
    return {
        "id": line_id(order, index),
        "admin_graphql_api_id": f"gid://shopify/LineItem/{line_id(order, index)}",
        "variant_id": None if not line.sku else 40_000_000 + index,
        "product_id": None if not line.sku else 70_000_000 + index,
        "sku": line.sku,
        "title": line.title,
        "variant_title": None,
        "name": line.title,
        "quantity": quantity,
        "current_quantity": quantity - refunded,
        "price": str(line.unit_price),
        "price_set": _money(line.unit_price, order),
        "total_discount": "0.00",
        "total_discount_set": _money(ZERO, order),
        "fulfillable_quantity": quantity - refunded if order.status in {"pending", "paid"} else 0,
        "fulfillment_service": "manual",
        "grams": 200,
        "vendor": None,
        "product_exists": bool(line.sku),
        "discount_allocations": [
            {"amount": str(line.discount), "amount_set": _money(line.discount, order), "discount_application_index": 0}
        ]
        if line.discount
        else [],
        "duties": _duties(order) if index == 0 else [],
        "tax_lines": _tax_lines(order.line_amount(line).tax, order),
        "taxable": bool(order.tax_rate),
        "requires_shipping": True,
        "gift_card": False,
        "properties": [],
        "fulfillment_status": "fulfilled" if order.status == "shipped" else None,
    }


def _duties(order: ShopOrder) -> list[Document]:
    if not order.duty:
        return []
    duty = {"id": order.number, "harmonized_system_code": "691110", "country_code_of_origin": "CN", "tax_lines": []}
    return [{**duty, **_money(order.duty, order)}]


def _shipping_lines(order: ShopOrder) -> list[Document]:
    if not order.shipping:
        return []
    discounted = order.shipping - order.shipping_discount
    discount = {"amount": str(order.shipping_discount), "amount_set": _money(order.shipping_discount, order)}
    return [
        {
            "id": order.number,
            "title": "Standard",
            "code": "standard",
            "price": str(order.shipping),
            "price_set": _money(order.shipping, order),
            "discounted_price": str(discounted),
            "discount_allocations": [{**discount, "discount_application_index": 1}] if order.shipping_discount else [],
            "tax_lines": _tax_lines(order.shipping_amount.tax, order),
            "is_removed": False,
        }
    ]


def _refund(order: ShopOrder, refund: Refund) -> Document:
    # Subtotals of refunds are numbers, although every price is a text.
    net = refund.amount.inc_tax if order.taxes_included else refund.amount.ex_tax
    return {
        "id": 900_000 + refund.number,
        "created_at": shop_time(refund.at),
        "note": None,
        "refund_line_items": [
            {
                "id": 950_000 + refund.number,
                "line_item_id": line_id(order, refund.line),
                "quantity": int(refund.quantity),
                "restock_type": "return",
                "subtotal": float(net),
                "total_tax": float(refund.amount.tax),
            }
        ],
        "transactions": [
            {"id": 960_000 + refund.number, "kind": "refund", "status": "success", "amount": str(refund.amount.inc_tax)}
        ],
        "order_adjustments": [],
    }
