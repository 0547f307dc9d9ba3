"""Orders of Shopify that were edited, returned and refunded, whose total is counted from these events.

The rules are those of Shopify's documents: `totalPriceSet` is the total before returns, and `currentTotalPriceSet` is the total after them.
The discounts of a line item include those of removed and returned units, and `currentQuantity` counts neither. An edit adds a refund
without money whose line items have the removed units.
https://shopify.dev/docs/api/admin-graphql/latest/objects/Order, …/objects/LineItem, …/enums/RefundLineItemRestockType
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from shop_documents.generated import CURRENCIES, RATES, ZERO, amounts, rounded

# Whether edits and returns are known to differ by the type of restocking.
_EDITS = [("CANCEL", "RETURN"), ("NO_RESTOCK", "RETURN"), ("CANCEL", "NO_RESTOCK"), ("", "RETURN")]


@dataclass(slots=True)
class _Line:
    """A line item, with the units that were removed by edits and those that were returned."""

    number: int
    price: Decimal
    quantity: int
    removed: int
    returned: int
    share: Decimal

    def net(self, units: int, places: int) -> Decimal:
        """The amount of units after the discount."""
        return self.price * units - rounded(self.price * units * self.share, places)


@dataclass(slots=True)
class EditedOrder:
    """Both documents of an order, and the total that the shop shows."""

    graphql: dict[str, Any]
    rest: dict[str, Any]
    total: Decimal


@st.composite
def edited_orders(draw: st.DrawFn) -> EditedOrder:
    """Draw an order in any combination of edits, returns, discounts, taxes, duties and refunded shipping."""
    currency = draw(st.sampled_from(sorted(CURRENCIES)))
    places, rate, includes_tax = CURRENCIES[currency], draw(st.sampled_from(RATES)), draw(st.booleans())
    edit, back = draw(st.sampled_from(_EDITS))
    lines = []
    for number in range(draw(st.integers(1, 4))):
        quantity = draw(st.integers(1, 5))
        removed = draw(st.integers(0, quantity))
        returned = draw(st.integers(0, quantity - removed))
        share = draw(st.sampled_from([ZERO, Decimal("0.1"), Decimal("0.2"), Decimal("0.333"), Decimal(1)]))
        lines.append(_Line(number, draw(amounts(places)), quantity, removed, returned, share))
    shipping, duty = draw(amounts(places, 20)), draw(st.sampled_from([ZERO, rounded(Decimal("7.5"), places)]))

    def tax_of(units: dict[int, int]) -> Decimal:
        nets = [line.net(units[line.number], places) for line in lines]
        return sum((rounded(net * (rate / (1 + rate) if includes_tax else rate), places) for net in nets), ZERO)

    ordered = {line.number: line.quantity for line in lines}
    kept = {line.number: line.quantity - line.removed for line in lines}
    current = {line.number: line.quantity - line.removed - line.returned for line in lines}

    def total_of(units: dict[int, int]) -> Decimal:
        products = sum((line.net(units[line.number], places) for line in lines), ZERO)
        return products + shipping + duty + (ZERO if includes_tax else tax_of(units))

    # Whether the taxes of the order are those before the edit is not documented.
    tax = tax_of(draw(st.sampled_from([ordered, kept])))
    refunds = []
    for kind, before, after in ((edit, ordered, kept), (back, kept, current)):
        items = []
        for line in lines:
            units = before[line.number] - after[line.number]
            if units and kind:
                net = line.net(before[line.number], places) - line.net(after[line.number], places)
                taxed = tax_of({**before}) - tax_of({**before, line.number: after[line.number]})
                items.append((line, units, net, taxed))
        if items:
            refunds.append((kind, items))
    values = _Values(currency, places, includes_tax, lines, shipping, duty, tax, tax_of(current), refunds)
    return EditedOrder(
        _graphql(values, total_of(kept), total_of(current)),
        _rest(values, total_of(kept), total_of(current)),
        total_of(kept),
    )


@dataclass(slots=True)
class _Values:
    currency: str
    places: int
    includes_tax: bool
    lines: list[_Line]
    shipping: Decimal
    duty: Decimal
    tax: Decimal
    current_tax: Decimal
    refunds: list[tuple[str, list[tuple[_Line, int, Decimal, Decimal]]]]

    def text(self, amount: Decimal) -> str:
        return f"{rounded(amount, self.places):f}"

    def discount(self, line: _Line) -> Decimal:
        return rounded(line.price * line.quantity * line.share, self.places)


def _graphql(values: _Values, total: Decimal, current: Decimal) -> dict[str, Any]:
    def money(amount: Decimal) -> dict[str, Any]:
        # Shopify omits the last zero of an amount.
        text = values.text(amount)
        return {"shopMoney": {"amount": text.removesuffix("0") if "." in text else f"{text}.0"}}

    return {
        "legacyResourceId": "1",
        "name": "#1",
        "createdAt": "2026-11-28T10:00:00Z",
        "processedAt": "2026-11-28T10:00:00Z",
        "updatedAt": "2026-11-28T10:00:00Z",
        "displayFinancialStatus": "PAID",
        "displayFulfillmentStatus": "UNFULFILLED",
        "currencyCode": values.currency,
        "taxesIncluded": values.includes_tax,
        "dutiesIncluded": False,
        "totalPriceSet": money(total),
        "currentTotalPriceSet": money(current),
        "totalTaxSet": money(values.tax),
        "currentTotalTaxSet": money(values.current_tax),
        "originalTotalDutiesSet": money(values.duty) if values.duty else None,
        "currentTotalDutiesSet": money(values.duty) if values.duty else None,
        "lineItems": {
            "nodes": [
                {
                    "id": f"gid://shopify/LineItem/{line.number}",
                    "sku": f"S{line.number}",
                    "name": "Mug",
                    "quantity": line.quantity,
                    "currentQuantity": line.quantity - line.removed - line.returned,
                    "originalUnitPriceSet": money(line.price),
                    "discountAllocations": [{"allocatedAmountSet": money(values.discount(line))}]
                    if values.discount(line)
                    else [],
                }
                for line in values.lines
            ],
            "pageInfo": {"hasNextPage": False, "endCursor": "x"},
        },
        "shippingLines": {
            "nodes": [
                {
                    "title": "Standard",
                    "isRemoved": False,
                    "originalPriceSet": money(values.shipping),
                    "discountedPriceSet": money(values.shipping),
                    "discountAllocations": [],
                }
            ]
        },
        "refunds": [
            {
                "totalRefundedSet": money(ZERO),
                "refundLineItems": {
                    "nodes": [
                        {
                            "quantity": units,
                            "restockType": kind,
                            "lineItem": {"id": f"gid://shopify/LineItem/{line.number}", "sku": f"S{line.number}"},
                            "subtotalSet": money(net),
                            "totalTaxSet": money(tax),
                        }
                        for line, units, net, tax in items
                    ]
                },
            }
            for kind, items in values.refunds
        ],
        "additionalFees": [],
        "tags": [],
        "customAttributes": [],
    }


def _rest(values: _Values, total: Decimal, current: Decimal) -> dict[str, Any]:
    def money(amount: Decimal) -> dict[str, Any]:
        return {"shop_money": {"amount": values.text(amount), "currency_code": values.currency}}

    return {
        "id": 1,
        "name": "#1",
        "created_at": "2026-11-28T10:00:00-05:00",
        "processed_at": "2026-11-28T10:00:00-05:00",
        "updated_at": "2026-11-28T10:00:00-05:00",
        "currency": values.currency,
        "financial_status": "paid",
        "fulfillment_status": None,
        "cancelled_at": None,
        "taxes_included": values.includes_tax,
        "total_price": values.text(total),
        "current_total_price": values.text(current),
        "total_tax": values.text(values.tax),
        "current_total_tax": values.text(values.current_tax),
        "tax_lines": [{"title": "VAT", "price": values.text(values.tax)}],
        "original_total_duties_set": money(values.duty) if values.duty else None,
        "current_total_duties_set": money(values.duty) if values.duty else None,
        "discount_applications": [{"type": "discount_code"}],
        "line_items": [
            {
                "id": line.number,
                "sku": f"S{line.number}",
                "name": "Mug",
                "quantity": line.quantity,
                "current_quantity": line.quantity - line.removed - line.returned,
                "price": values.text(line.price),
                "discount_allocations": [{"amount": values.text(values.discount(line))}]
                if values.discount(line)
                else [],
            }
            for line in values.lines
        ],
        "shipping_lines": [{"title": "Standard", "price": values.text(values.shipping), "discount_allocations": []}],
        "refunds": [
            {
                "refund_line_items": [
                    {
                        "quantity": units,
                        "restock_type": kind.lower(),
                        "line_item_id": line.number,
                        "line_item": {"sku": f"S{line.number}"},
                        # A number, although prices are texts.
                        "subtotal": Decimal(values.text(net)),
                        "total_tax": Decimal(values.text(tax)),
                    }
                    for line, units, net, tax in items
                ],
                # A refund of the shipping charge does not change the total before returns.
                "order_adjustments": [{"kind": "shipping_refund", "amount": values.text(-values.shipping)}],
            }
            for kind, items in values.refunds
        ],
    }
