"""Orders of WooCommerce, which stores exact amounts of lines, and writes them rounded.

`WC_Abstract_Order::calculate_totals`: the total is the sum of the exact amounts and of the rounded taxes, rounded to the
decimal places of the shop.
"""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from shop_documents.generated import CURRENCIES, RATES, ZERO, Generated, Sum, amounts, finished, rounded, sometimes

_STORED = 6
"""Decimal places with which WooCommerce computes."""


@st.composite
def woocommerce_orders(draw: st.DrawFn) -> Generated:
    currency = draw(st.sampled_from(sorted(CURRENCIES)))
    places = CURRENCIES[currency]
    includes_tax, rounds_lines = draw(st.booleans()), draw(st.booleans())
    rate = draw(st.sampled_from(RATES))
    lines, exact, taxes = [], ZERO, []
    for number in range(draw(st.integers(0, 6))):
        line, ex_tax, tax = _line(draw, number, places, rate, includes_tax=includes_tax)
        lines.append(line)
        exact += ex_tax
        taxes.append(tax)
    fees = []
    for number in range(draw(st.integers(0, 2))):
        fee = draw(amounts(places, 20)) * draw(st.sampled_from([1, -1]))
        exact += fee
        taxes.append(fee * rate)
        fees.append({"id": number, "name": "Gift wrap &amp; card", "total": f"{fee:f}", "total_tax": f"{fee * rate:f}"})
    shipping = []
    shipping_tax = ZERO
    for _ in range(draw(st.integers(0, 2))):
        cost = draw(sometimes(amounts(places, 30)))
        exact += cost
        shipping_tax += rounded(cost * rate, places)
        shipping.append(
            {"method_title": "Flat rate", "total": f"{cost:f}" if cost else draw(st.sampled_from(["0.00", ""]))}
        )
    cart_tax = sum((rounded(tax, places) for tax in taxes), ZERO) if rounds_lines else rounded(sum(taxes, ZERO), places)
    total_tax = cart_tax + shipping_tax
    summed = Sum(places, rounded(exact + total_tax, places))
    # With the total that the rounded amounts add up to, nothing would differ.
    summed.optional.append(written_sum(lines, fees, shipping) + total_tax - summed.total)
    document = {
        "id": 727,
        "status": draw(st.sampled_from(["processing", "refunded", "completed"])),
        "currency": currency,
        "prices_include_tax": includes_tax,
        "date_created_gmt": "2026-03-01T10:00:00",
        "date_modified_gmt": "2026-03-01T10:00:05",
        "total": summed.text(summed.total),
        "total_tax": f"{total_tax:f}",
        "cart_tax": f"{cart_tax:f}",
        "shipping_tax": f"{shipping_tax:f}",
        "customer_id": 3,
        "shipping": {"country": "DE"},
        "line_items": lines,
        "fee_lines": fees,
        "shipping_lines": shipping,
        # A refund does not change the total.
        "refunds": draw(st.sampled_from([[], [{"id": 1, "reason": "", "total": "-1.00"}]])),
    }
    return finished(draw, document, summed, ("total",))


def written_sum(*lists: list[dict[str, Any]]) -> Decimal:
    """Add the amounts as they are written."""
    return sum((Decimal(line["total"] or 0) for lines in lists for line in lines), ZERO)


def _line(
    draw: Any, number: int, places: int, rate: Decimal, *, includes_tax: bool
) -> tuple[dict[str, Any], Decimal, Decimal]:
    quantity = draw(st.sampled_from([Decimal(1), Decimal(1), Decimal(2), Decimal(3), Decimal(7), Decimal("2.5"), ZERO]))
    price = draw(amounts(places))
    charged = price * quantity if quantity else price
    # A coupon of a part of the price, in the smallest unit of the currency.
    share = draw(st.sampled_from([ZERO, ZERO, Decimal("0.1"), Decimal("0.333"), Decimal(1)]))
    charged -= rounded(charged * share, places)
    ex_tax = rounded(charged / (1 + rate), _STORED) if includes_tax else charged
    tax = rounded(charged - ex_tax if includes_tax else charged * rate, _STORED)
    if not quantity:
        # Plugins for deposits set the amount, which is not rounded again.
        ex_tax = rounded(ex_tax, places)
    written = {
        "id": number,
        "name": "Cup &ndash; blue",
        "product_id": number,
        "sku": draw(st.sampled_from(["CUP", "", None])),
        "quantity": int(quantity) if quantity == quantity.to_integral_value() else quantity,
        "subtotal": f"{rounded(price, places):f}",
        "total": f"{rounded(ex_tax, places):f}",
        "total_tax": f"{rounded(tax, places):f}",
        "price": float(ex_tax) / float(quantity) if quantity else 0,
    }
    return written, ex_tax, tax
