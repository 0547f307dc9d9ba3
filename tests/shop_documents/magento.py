"""Orders of Magento Open Source and Adobe Commerce. Amounts are numbers.

`grand_total` is the sum of the totals that Magento collects: rows without tax, shipping, the tax after discounts, discounts, the
tax within discounts, fixed product taxes, gift wrapping, gift cards, store credit and reward points.
"""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from shop_documents.generated import CURRENCIES, RATES, ZERO, Generated, Sum, amounts, finished, rounded, sometimes


class _Order:
    """An order while it is made."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.currency = draw(st.sampled_from(sorted(CURRENCIES)))
        self.summed = Sum(CURRENCIES[self.currency])
        self.rate = draw(st.sampled_from(RATES))
        self.includes_tax = draw(st.booleans())
        self.tax = self.discount = self.compensation = ZERO

    def charge(self, price: Decimal, discount: Decimal) -> tuple[Decimal, Decimal]:
        """Count a price and its discount. Return the price without tax, and the tax within the discount."""
        places = self.summed.places

        def tax_of(amount: Decimal) -> Decimal:
            return rounded(amount * self.rate / (1 + self.rate) if self.includes_tax else amount * self.rate, places)

        tax = tax_of(price - discount)
        before = tax_of(price)
        row = price - before if self.includes_tax else price
        self.tax += tax
        self.discount += discount
        # The discount of prices with tax contains tax, which is then missing in the tax of the order.
        within = before - tax if self.includes_tax else ZERO
        self.summed.add(row + tax - discount + within)
        return row, within

    def share(self, price: Decimal) -> Decimal:
        """A discount on a price."""
        share = self.draw(st.sampled_from([ZERO, ZERO, Decimal("0.1"), Decimal("0.333"), Decimal(1)]))
        return rounded(price * share, self.summed.places)

    def item(self, number: int) -> list[dict[str, Any]]:
        """An item, and the items below it."""
        draw, places = self.draw, self.summed.places
        quantity = draw(
            st.sampled_from([Decimal(1), Decimal(2), Decimal(3), Decimal(7), Decimal("2.5"), Decimal("0.333")])
        )
        price = draw(amounts(places))
        charged = rounded(price * quantity, places)
        row, within = self.charge(charged, self.share(charged))
        self.compensation += within
        weee = self.summed.add(draw(sometimes(amounts(places, 3))))
        item: dict[str, Any] = {
            "item_id": 10 * number,
            "sku": "SHIRT",
            "name": "Shirt",
            "product_type": "simple",
            "qty_ordered": quantity,
            "qty_refunded": 0,
            "price": price,
            "row_total": row,
            "weee_tax_applied_row_amount": weee,
        }
        kind = draw(st.sampled_from(["simple", "simple", "configurable", "bundle"]))
        if kind == "simple":
            return [item]
        # The variant that was sold has no price. The products of a bundle may have the prices that the bundle adds up.
        below = {**item, "item_id": 10 * number + 1, "parent_item_id": 10 * number, "weee_tax_applied_row_amount": 0}
        if kind == "configurable" or draw(st.booleans()):
            below |= {"price": 0, "row_total": 0}
        return [{**item, "product_type": kind}, below]


@st.composite
def magento_orders(draw: st.DrawFn) -> Generated:
    order = _Order(draw)
    summed, places = order.summed, order.summed.places
    items = [item for number in range(1, draw(st.integers(2, 6))) for item in order.item(number)]
    shipping = draw(sometimes(amounts(places, 30)))
    shipping_row, shipping_within = order.charge(shipping, order.share(shipping))
    extension: dict[str, Any] = {}
    for name in ("gw_price", "gw_items_price", "gw_card_price"):
        if wrapping := draw(sometimes(amounts(places, 5))):
            # The tax of the order contains the tax of gift wrapping.
            tax = rounded(wrapping * order.rate, places)
            order.tax += tax
            extension |= {name: summed.add(wrapping), name.replace("price", "tax_amount"): summed.add(tax)}
    for name in ("gift_cards_amount", "customer_balance_amount", "reward_currency_amount"):
        if paid := draw(sometimes(amounts(places, 10))):
            summed.add(-paid)
            extension[name] = paid
    document = {
        "entity_id": 12,
        "increment_id": "000000012",
        "state": "processing",
        "status": "processing",
        "created_at": "2026-03-01 10:00:00",
        "updated_at": "2026-03-01 10:05:00",
        "order_currency_code": order.currency,
        "base_currency_code": "USD",
        "base_grand_total": rounded(summed.total * Decimal("1.1"), 2),
        "customer_is_guest": 1,
        "items": items,
        "shipping_amount": shipping_row,
        "shipping_discount_tax_compensation_amount": shipping_within,
        "discount_amount": -order.discount,
        "discount_tax_compensation_amount": order.compensation,
        "tax_amount": order.tax,
        # Refunds do not change the total.
        "total_refunded": Decimal("1.5"),
        "grand_total": summed.total,
        "billing_address": {"country_id": "DE"},
        "extension_attributes": extension,
    }
    return finished(draw, document, summed, ("grand_total",))
