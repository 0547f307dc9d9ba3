"""Orders as BigCommerce's REST API writes them."""

from decimal import Decimal
from email.utils import format_datetime

from ingest.lab.shops.kinds.kind import Document
from ingest.lab.shops.orders import ZERO, Amount, Line, ShopOrder

STORE = "simulated"
FIRST_ID = 100
ORDERS = f"/stores/{STORE}/v2/orders"
_STATUSES = {
    "pending": (1, "Pending"),
    "paid": (11, "Awaiting Fulfillment"),
    "shipped": (2, "Shipped"),
    "cancelled": (5, "Cancelled"),
}


def bigcommerce_order(order: ShopOrder, base_url: str, *, with_fees: bool) -> Document:
    """Return an order without its sub-resources."""
    charged, shipping, wrapping = order.charged, order.shipping_amount, order.wrapping_amount
    status_id, status = _STATUSES[order.status]
    totals = [_line_total(order, line) for line in order.lines]
    subtotal = sum(totals, Amount(ZERO))
    order_id = FIRST_ID + order.number
    resource = f"{base_url}{ORDERS}/{order_id}"
    document = {
        "id": order_id,
        "customer_id": order.customer or 0,
        "date_created": format_datetime(order.placed_at),
        "date_modified": format_datetime(order.updated_at),
        "date_shipped": format_datetime(order.updated_at) if order.status == "shipped" else "",
        "status_id": status_id,
        "status": status,
        **_three("subtotal", subtotal),
        "base_shipping_cost": _money(order.shipping),
        **_three("shipping_cost", shipping),
        **_three("handling_cost", Amount(ZERO)),
        **_three("wrapping_cost", wrapping),
        **_three("total", charged),
        "items_total": int(sum((line.quantity for line in order.lines), Decimal(0))),
        "items_shipped": len(order.lines) if order.status == "shipped" else 0,
        "payment_method": "Manual",
        "payment_status": "" if order.status == "pending" else "captured",
        "refunded_amount": _money(order.refunded.inc_tax),
        "store_credit_amount": "0.0000",
        "gift_certificate_amount": "0.0000",
        "currency_id": 1,
        "currency_code": order.currency,
        "currency_exchange_rate": "1.0000000000",
        "default_currency_id": 1,
        "default_currency_code": order.currency,
        "staff_notes": f"revision {order.revision}",
        "customer_message": "",
        "discount_amount": _money(sum((line.discount for line in order.lines), ZERO)),
        "coupon_discount": "0.0000",
        "is_deleted": False,
        "is_tax_inclusive_pricing": order.taxes_included,
        "order_is_digital": order.country is None,
        "order_source": "www",
        "shipping_address_count": int(order.country is not None),
        "external_order_id": "",
        "tax_provider_id": "BasicTaxProvider",
        "billing_address": {"first_name": "Ada", "country": "", "country_iso2": order.country or "", "email": ""},
        "products": {"url": f"{resource}/products", "resource": f"/orders/{order_id}/products"},
        "shipping_addresses": {
            "url": f"{resource}/shipping_addresses",
            "resource": f"/orders/{order_id}/shipping_addresses",
        },
        "external_id": None,
        "external_source": None,
        "channel_id": 1,
    }
    if with_fees:
        document["fees"] = [
            {
                "id": index,
                "type": "custom_fee",
                "name": name,
                "display_name_customer": name,
                "display_name_merchant": name,
                **{f"cost{suffix}": _money(cost) for suffix in ("", "_ex_tax", "_inc_tax")},
                "cost_tax": "0.0000",
                "source": "APP",
            }
            for index, (name, cost) in enumerate((("Small order", order.fee), ("Import duty", order.duty)), 1)
            if cost
        ]
    return document


def _line_total(order: ShopOrder, line: Line) -> Amount:
    """The price before discounts, with the tax after discounts."""
    tax = order.line_amount(line).tax
    return Amount(line.subtotal - tax, tax) if order.taxes_included else Amount(line.subtotal, tax)


def bigcommerce_product(order: ShopOrder, index: int, line: Line) -> Document:
    """Return a product of an order."""
    price, total = order.amount(line.unit_price), _line_total(order, line)
    refunded = sum((refund.quantity for refund in order.refunds if refund.line == index), Decimal(0))
    return {
        "id": order.number * 1000 + index,
        "order_id": FIRST_ID + order.number,
        "product_id": 0 if not line.sku else 500 + index,
        "variant_id": 600 + index,
        "order_address_id": order.number,
        "name": line.title,
        "sku": line.sku,
        "upc": "",
        "type": "physical",
        "base_price": _money(line.unit_price),
        "price_ex_tax": _money(price.ex_tax),
        "price_inc_tax": _money(price.inc_tax),
        "price_tax": _money(price.tax),
        "base_total": _money(line.subtotal),
        "total_ex_tax": _money(total.ex_tax),
        "total_inc_tax": _money(total.inc_tax),
        "total_tax": _money(total.tax),
        "quantity": int(line.quantity),
        "is_refunded": refunded >= line.quantity,
        "quantity_refunded": int(refunded),
        "refund_amount": "0.0000",
        "quantity_shipped": int(line.quantity) if order.status == "shipped" else 0,
        "applied_discounts": [
            {"id": "coupon", "amount": _money(line.discount), "name": "Spring", "code": "SPRING", "target": "product"}
        ]
        if line.discount
        else [],
        "product_options": [],
    }


def _money(amount: Decimal) -> str:
    return f"{amount:.4f}"


def _three(name: str, amount: Amount) -> Document:
    return {
        f"{name}_ex_tax": _money(amount.ex_tax),
        f"{name}_inc_tax": _money(amount.inc_tax),
        f"{name}_tax": _money(amount.tax),
    }
