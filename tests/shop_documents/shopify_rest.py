"""Orders of Shopify's REST Admin API.

`total_price` is the sum of all products, shipping, taxes, duties, fees and tips, minus discounts, before returns and refunds.
"""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from shop_documents.generated import (
    CURRENCIES,
    RATES,
    ZERO,
    Generated,
    Sum,
    amounts,
    finished,
    rounded,
    shares,
    sometimes,
)


def money(text: str, currency: str) -> dict[str, Any]:
    """An amount in the currencies of the shop and of the buyer."""
    buyer = {"amount": f"{Decimal(text) * Decimal('1.1'):.2f}", "currency_code": "CAD"}
    return {"shop_money": {"amount": text, "currency_code": currency}, "presentment_money": buyer}


class _Order:
    """An order while it is made."""

    def __init__(self, draw: Any, *, is_rest: bool) -> None:
        self.draw = draw
        self.is_rest = is_rest
        self.currency = draw(st.sampled_from(sorted(CURRENCIES)))
        self.summed = Sum(CURRENCIES[self.currency])
        self.includes_tax = draw(st.booleans())
        self.rate = draw(st.sampled_from(RATES))
        self.tax = self.discounts = self.removed = ZERO
        # Whether a part of a line has another amount than its price.
        self.is_reduced = False
        # The documentation does not state whether the total contains a charge that was removed.
        self.counts_removed = draw(st.booleans())
        # The discounts of orders that were imported are not allocated.
        self.allocates = not is_rest or draw(st.integers(0, 3)) > 0
        self.writes_at_lines = not self.allocates and draw(st.booleans())

    def tax_on(self, amount: Decimal) -> list[dict[str, Any]]:
        """Count the tax of an amount, and return it as written at the amount."""
        share = amount * self.rate / (1 + self.rate) if self.includes_tax else amount * self.rate
        tax = rounded(share, self.summed.places)
        self.tax += tax
        return [{"title": "VAT", "price": self.summed.text(tax), "rate": float(self.rate)}] if tax else []

    def allocations(self, amount: Decimal) -> list[dict[str, Any]]:
        """Count a discount, and return its parts."""
        self.discounts += amount
        self.summed.add(-amount)
        if not self.allocates:
            return []
        parts = shares(self.draw, amount, self.summed.places)
        return [
            {"amount": self.summed.text(part), "discount_application_index": index} for index, part in enumerate(parts)
        ]

    def line(self, number: int) -> dict[str, Any]:
        draw, summed = self.draw, self.summed
        price, quantity = draw(amounts(summed.places)), draw(st.integers(1, 5))
        summed.add(price * quantity)
        share = draw(st.sampled_from([ZERO, ZERO, Decimal("0.1"), Decimal("0.333"), Decimal(1)]))
        discount = rounded(price * quantity * share, summed.places)
        current = draw(st.integers(0, quantity))
        self.removed += price * (quantity - current)
        self.is_reduced = self.is_reduced or bool(discount) or not self.includes_tax
        return {
            "id": number,
            "sku": draw(st.sampled_from(["MUG", "", None])),
            "variant_id": 31,
            "name": "Mug",
            "quantity": quantity,
            # After edits, returns and refunds.
            "current_quantity": current,
            "price": summed.text(price),
            "total_discount": summed.text(discount if self.writes_at_lines else ZERO),
            "discount_allocations": self.allocations(discount),
            "tax_lines": self.tax_on(price * quantity - discount),
            "duties": [],
        }

    def shipping(self) -> dict[str, Any]:
        draw, summed = self.draw, self.summed
        price = draw(amounts(summed.places, 30))
        discount = draw(st.sampled_from([ZERO, ZERO, price]))
        is_removed = draw(st.integers(0, 5)) == 0
        written = {"title": "Standard", "price": summed.text(price), "is_removed": is_removed}
        if is_removed:
            summed.maybe(price - discount, counts=self.counts_removed)
            parts = [{"amount": summed.text(discount)}] if discount else []
            return {**written, "discounted_price": summed.text(price - discount), "discount_allocations": parts}
        summed.add(price)
        if self.writes_at_lines:
            written["discounted_price"] = summed.text(price - discount)
        return {
            **written,
            "discount_allocations": self.allocations(discount),
            "tax_lines": self.tax_on(price - discount),
        }


@st.composite
def shopify_rest_orders(draw: st.DrawFn, *, is_rest: bool = True) -> Generated:
    """Orders as the REST API writes them, or only with the amounts that GraphQL writes as well."""
    order = _Order(draw, is_rest=is_rest)
    summed, currency = order.summed, order.currency
    lines = [order.line(number) for number in range(draw(st.integers(0, 5)))]
    # The documentation does not state whether an edit that removes products changes the total.
    counts_edits = not order.is_reduced and draw(st.integers(0, 3)) == 0
    summed.maybe(-order.removed, counts=counts_edits)
    shipping = [order.shipping() for _ in range(draw(st.integers(0, 2)))]
    document: dict[str, Any] = {
        "id": 5001,
        "name": "#1001",
        "created_at": "2026-03-01T10:00:00-05:00",
        "processed_at": "2026-03-01T10:00:00-05:00",
        "updated_at": "2026-03-01T10:00:05-05:00",
        "currency": currency,
        "presentment_currency": "CAD",
        "financial_status": draw(st.sampled_from(["paid", "partially_refunded", "refunded"])),
        "fulfillment_status": None,
        "cancelled_at": draw(st.sampled_from([None, "2026-03-02T10:00:00-05:00"])),
        "taxes_included": order.includes_tax,
        "line_items": lines,
        "shipping_lines": shipping,
        "refunds": draw(st.sampled_from([[], [{"refund_line_items": [{"subtotal": Decimal("195.66")}]}]])),
        "discount_applications": [{"type": "discount_code"}] if order.allocates and order.discounts else [],
        "total_discounts": summed.text(ZERO if order.writes_at_lines else order.discounts),
    }
    if not order.allocates and order.discounts:
        summed.depends = True
    _add_duties(draw, document, order)
    _add_fees_and_tips(draw, document, order)
    document["total_tax"] = summed.text(order.tax)
    # Some orders contain only the sum of their taxes.
    titled = not is_rest or draw(st.integers(0, 5)) > 0
    document["tax_lines"] = (
        [{"title": f"Tax {part}", "price": summed.text(part)} for part in shares(draw, order.tax, summed.places)]
        if titled
        else []
    )
    if not order.includes_tax:
        summed.add(order.tax)
    rounding, rounds = draw(sometimes(amounts(summed.places, 1))), is_rest and draw(st.booleans())
    document["total_cash_rounding_payment_adjustment_set"] = money(
        summed.text(summed.maybe(rounding, counts=rounds)), currency
    )
    document["total_price"] = summed.text(summed.total)
    document["total_price_set"] = money(document["total_price"], currency)
    place: tuple[str | int, ...] = ("total_price",)
    if is_rest and draw(st.booleans()):
        document, place = {"order": document}, ("order", "total_price")
    return finished(draw, document, summed, place)


def _add_duties(draw: Any, document: dict[str, Any], order: _Order) -> None:
    summed = order.summed
    duty = draw(sometimes(amounts(summed.places, 40)))
    if not duty:
        return
    document["duties_included"] = draw(st.integers(0, 3)) == 0
    if not document["duties_included"]:
        summed.add(duty)
    lines = document["line_items"]
    at_lines = order.is_rest and bool(lines) and draw(st.booleans())
    if at_lines:
        written = money(summed.text(duty), order.currency)
        # The tax of a duty may be one of the taxes of the order, or not.
        tax = rounded(duty * order.rate, summed.places)
        lines[0]["duties"] = [
            {
                "id": 1,
                "harmonized_system_code": "691110",
                **written,
                "tax_lines": [{"title": "VAT", "price": summed.text(tax)}],
            }
        ]
        counts = not (order.includes_tax or document["duties_included"])
        summed.maybe(tax, counts=counts and draw(st.booleans()))
    if not at_lines or draw(st.booleans()):
        document["original_total_duties_set"] = money(summed.text(duty), order.currency)
        # After a return. The total of an edited order would be without the duty.
        document["current_total_duties_set"] = money("0.00", order.currency)
        summed.optional.append(duty)


def _add_fees_and_tips(draw: Any, document: dict[str, Any], order: _Order) -> None:
    summed = order.summed
    fee = draw(sometimes(amounts(summed.places, 5)))
    if fee:
        document["original_total_additional_fees_set"] = money(summed.text(summed.add(fee)), order.currency)
        document["current_total_additional_fees_set"] = money(summed.text(fee), order.currency)
    tip = draw(sometimes(amounts(summed.places, 20)))
    document["total_tip_received"] = summed.text(tip)
    # Most tips are products.
    if draw(st.booleans()):
        summed.maybe(tip, counts=True)
    else:
        summed.optional.append(summed.add(tip))
        document["line_items"].append(
            {"id": 99, "sku": None, "variant_id": None, "name": "Tip", "quantity": 1, "price": summed.text(tip)}
        )
