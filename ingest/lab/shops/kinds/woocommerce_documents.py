"""Orders as WooCommerce's REST API and its webhooks write them."""

from datetime import datetime, timedelta
from decimal import Decimal
from html import escape

from ingest.lab.shops.kinds.kind import Document
from ingest.lab.shops.orders import NO_AMOUNT, Amount, Line, ShopOrder

FIRST_ID = 1000  # posts of WordPress share one sequence, so the first order is not 1
ORDERS = "/wp-json/wc/v3/orders"
SITE_ZONE = timedelta(hours=2)
STATUSES = {"pending": "pending", "paid": "processing", "shipped": "completed", "cancelled": "cancelled"}


def woocommerce_order(order: ShopOrder, base_url: str) -> Document:
    """Return an order."""
    country = order.country or ""
    charged, shipping = order.charged, order.shipping_amount
    is_paid = order.status in {"paid", "shipped"}
    discount = sum((_discount(order, line) for line in order.lines), NO_AMOUNT)
    fees = [
        (name, amount)
        for name, amount in (
            ("Gift wrapping", order.wrapping_amount),
            ("Customs &amp; duties", Amount(order.duty)),
            ("Small order fee", Amount(order.fee)),
        )
        if amount.inc_tax
    ]
    return {
        "id": FIRST_ID + order.number,
        "parent_id": 0,
        "status": STATUSES[order.status],
        "currency": order.currency,
        "version": "10.4.0",
        "prices_include_tax": order.taxes_included,
        "date_created": _site_time(order.placed_at),
        "date_modified": _site_time(order.updated_at),
        "discount_total": str(discount.ex_tax),
        "discount_tax": str(discount.tax),
        "shipping_total": str(shipping.ex_tax),
        "shipping_tax": str(shipping.tax),
        "cart_tax": str(charged.tax - shipping.tax),
        "total": str(charged.inc_tax),
        "total_tax": str(charged.tax),
        "customer_id": order.customer or 0,
        "order_key": f"wc_order_{order.number:013x}",
        "created_via": "checkout",
        "customer_ip_address": "192.0.2.1",
        "customer_user_agent": "Mozilla/5.0",
        "cart_hash": "",
        "billing": _address("Ada", "Example", country) | {"email": "ada@example.com", "phone": ""},
        "shipping": _address("", "", country),
        "payment_method": "bacs" if is_paid else "",
        "payment_method_title": "Direct bank transfer" if is_paid else "",
        "transaction_id": "",
        "customer_note": "",
        "date_completed": _site_time(order.updated_at) if order.status == "shipped" else None,
        "date_paid": _site_time(order.placed_at) if is_paid else None,
        "number": str(FIRST_ID + order.number),
        "meta_data": [
            {"id": 1, "key": "_revision", "value": order.revision},
            {"id": 2, "key": "gift_message", "value": ""},
        ],
        "line_items": [_line(order, index, line) for index, line in enumerate(order.lines, 1)],
        "tax_lines": [
            {
                "id": 901,
                "rate_code": "VAT-1",
                "rate_id": 1,
                "label": "VAT",
                "compound": False,
                "tax_total": str(charged.tax - shipping.tax),
                "shipping_tax_total": str(shipping.tax),
                "rate_percent": float(order.tax_rate * 100),
                "meta_data": [],
            }
        ]
        if charged.tax
        else [],
        "shipping_lines": [
            {
                "id": 801,
                "method_title": "Flat rate",
                "method_id": "flat_rate",
                "instance_id": "1",
                "total": str(shipping.ex_tax),
                "total_tax": str(shipping.tax),
                "taxes": [],
                "meta_data": [],
            }
        ],
        "fee_lines": [
            {
                "id": 701 + index,
                "name": name,
                "tax_class": "",
                "tax_status": "taxable" if amount.tax else "none",
                "amount": str(amount.ex_tax),
                "total": str(amount.ex_tax),
                "total_tax": str(amount.tax),
                "taxes": [],
                "meta_data": [],
            }
            for index, (name, amount) in enumerate(fees)
        ],
        "coupon_lines": [
            {
                "id": 601,
                "code": "SAVE",
                "discount": str(discount.ex_tax),
                "discount_tax": str(discount.tax),
                "meta_data": [],
            }
        ]
        if discount.ex_tax
        else [],
        "refunds": [
            {"id": 500_000 + refund.number, "reason": "", "total": f"-{refund.amount.inc_tax}"}
            for refund in reversed(order.refunds)
        ],
        "payment_url": "",
        "is_editable": False,
        "needs_payment": order.status == "pending",
        "date_created_gmt": _gmt(order.placed_at),
        "date_modified_gmt": _gmt(order.updated_at),
        "date_completed_gmt": _gmt(order.updated_at) if order.status == "shipped" else None,
        "date_paid_gmt": _gmt(order.placed_at) if is_paid else None,
        "currency_symbol": "€",
        "_links": {"self": [{"href": f"{base_url}{ORDERS}/{FIRST_ID + order.number}"}]},
    }


def _address(first_name: str, last_name: str, country: str) -> Document:
    empty = dict.fromkeys(("company", "address_1", "address_2", "city", "state", "postcode"), "")
    return {"first_name": first_name, "last_name": last_name, **empty, "country": country}


def _discount(order: ShopOrder, line: Line) -> Amount:
    before, after = order.amount(line.subtotal), order.line_amount(line)
    return Amount(before.ex_tax - after.ex_tax, before.tax - after.tax)


def _line(order: ShopOrder, index: int, line: Line) -> Document:
    before, after = order.amount(line.subtotal), order.line_amount(line)
    quantity = int(line.quantity)
    return {
        "id": index,
        "name": escape(line.title, quote=False),
        "product_id": 0 if not line.sku else 93 + index,
        "variation_id": 0,
        "quantity": quantity,
        "tax_class": "",
        "subtotal": str(before.ex_tax),
        "subtotal_tax": str(before.tax),
        "total": str(after.ex_tax),
        "total_tax": str(after.tax),
        "taxes": [{"id": 1, "total": str(after.tax), "subtotal": str(before.tax)}] if after.tax else [],
        "meta_data": [],
        # The SKU of a deleted product is null.
        "sku": line.sku or None,
        "global_unique_id": "",
        # Divided in binary floating point, as PHP does.
        "price": float(after.ex_tax) / float(quantity or Decimal(1)),
        "image": {"id": "", "src": ""},
        "parent_name": None,
    }


def _gmt(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat()


def _site_time(moment: datetime) -> str:
    return (moment.replace(tzinfo=None) + SITE_ZONE).isoformat()
