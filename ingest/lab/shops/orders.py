"""An order of a simulated shop, and the amounts that every kind of shop writes in its own way."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

ZERO = Decimal("0.00")
_CENT = Decimal("0.01")

Status = Literal["pending", "paid", "shipped", "cancelled"]


def cents(amount: Decimal) -> Decimal:
    """Round an amount to two decimal places."""
    return amount.quantize(_CENT, ROUND_HALF_UP)


@dataclass(frozen=True, slots=True)
class Amount:
    """A charge with its tax.

    Attributes:
        ex_tax: without tax.
        tax: the tax.
    """

    ex_tax: Decimal
    tax: Decimal = ZERO

    @property
    def inc_tax(self) -> Decimal:
        """The charge including tax."""
        return self.ex_tax + self.tax

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.ex_tax + other.ex_tax, self.tax + other.tax)


NO_AMOUNT = Amount(ZERO)


@dataclass(frozen=True, slots=True)
class Line:
    """A product in an order.

    Attributes:
        sku: identifies the product, or empty.
        title: name of the product.
        quantity: an integer, except in shops that sell by weight.
        unit_price: price before discounts. Whether it includes tax depends on the order.
        discount: discount on the whole line.
    """

    sku: str
    title: str
    quantity: Decimal
    unit_price: Decimal
    discount: Decimal = ZERO

    @property
    def subtotal(self) -> Decimal:
        """Price of the line before the discount."""
        return cents(self.unit_price * self.quantity)


@dataclass(frozen=True, slots=True)
class Refund:
    """Money refunded for a part of a line.

    Attributes:
        number: identifies the refund.
        line: index of the line.
        quantity: of products.
        amount: with tax.
        at: time.
    """

    number: int
    line: int
    quantity: Decimal
    amount: Amount
    at: datetime


@dataclass(slots=True)
class ShopOrder:
    """An order as the shop stores it.

    Attributes:
        number: counts the shop's orders from 1. Each kind makes its ID from it.
        placed_at: time of the sale, in whole seconds.
        updated_at: time of the last change, in whole seconds.
        currency: ISO 4217 code.
        customer: number of the customer, or None for a guest.
        country: ISO 3166 code of the destination, or None if nothing is shipped.
        lines: the products.
        taxes_included: whether prices include tax.
        tax_rate: share of the price, such as 0.19.
        shipping: charge before the discount.
        shipping_discount: discount on it.
        fee: further fee without tax.
        duty: import duty without tax.
        gift_wrap: charge for wrapping.
        status: progress of the order.
        refunds: from the oldest to the latest.
        revision: counts the changes, from 1.
        visible_at: time from which lists contain the order.
        indexed_at: time of its entry in an index that is behind, or None.
    """

    number: int
    placed_at: datetime
    updated_at: datetime
    currency: str
    customer: int | None
    country: str | None
    lines: tuple[Line, ...]
    taxes_included: bool
    tax_rate: Decimal
    shipping: Decimal = ZERO
    shipping_discount: Decimal = ZERO
    fee: Decimal = ZERO
    duty: Decimal = ZERO
    gift_wrap: Decimal = ZERO
    status: Status = "pending"
    refunds: Sequence[Refund] = field(default_factory=tuple)
    revision: int = 1
    visible_at: datetime | None = None
    indexed_at: datetime | None = None

    @property
    def listed_at(self) -> datetime:
        """The time of the last change by which lists select and sort the order."""
        return self.updated_at if self.indexed_at is None else self.indexed_at

    def amount(self, price: Decimal) -> Amount:
        """Divide a price of this order into the part without tax and the tax."""
        if self.taxes_included:
            ex_tax = cents(price / (1 + self.tax_rate))
            return Amount(ex_tax, price - ex_tax)
        return Amount(price, cents(price * self.tax_rate))

    def line_amount(self, line: Line) -> Amount:
        """The charge for a line after its discount."""
        return self.amount(line.subtotal - line.discount)

    @property
    def products(self) -> Amount:
        """The charge for all lines after discounts."""
        return sum((self.line_amount(line) for line in self.lines), NO_AMOUNT)

    @property
    def shipping_amount(self) -> Amount:
        """The charge for shipping after its discount."""
        return self.amount(self.shipping - self.shipping_discount)

    @property
    def wrapping_amount(self) -> Amount:
        """The charge for gift wrapping."""
        return self.amount(self.gift_wrap)

    @property
    def charged(self) -> Amount:
        """Everything that the customer was charged, before refunds."""
        extras = Amount(self.fee + self.duty)
        return self.products + self.shipping_amount + self.wrapping_amount + extras

    @property
    def discounts(self) -> Decimal:
        """All discounts, in prices of the order."""
        return sum((line.discount for line in self.lines), ZERO) + self.shipping_discount

    @property
    def refunded(self) -> Amount:
        """All refunds."""
        return sum((refund.amount for refund in self.refunds), NO_AMOUNT)
