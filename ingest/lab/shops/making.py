"""Makes the orders of a simulated shop from the bundled samples. The same seed makes the same orders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import msgspec

from ingest.lab.shops.orders import ZERO, Line, ShopOrder, cents
from ingest.lab.upstream.samples import sample_orders

PERIOD = timedelta(days=30)
"""The initial orders are spread over this time before the shop starts."""

_COUNTRIES = {"United Kingdom": "GB", "Germany": "DE", "France": "FR", "EIRE": "IE", "Spain": "ES", "Belgium": "BE"}
_USUAL_LINES, _MANY_LINES = 12, 300
_MANY_EVERY = 50  # every fiftieth order keeps its many lines, so that lines come in pages
_RATES = (Decimal("0.19"), Decimal("0.20"), Decimal("0.07"), ZERO)


@dataclass(frozen=True, slots=True)
class Traits:
    """Which orders a kind of shop can have.

    Attributes:
        fractional: whether some quantities are fractions.
        taxes_included: whether prices include tax, or None for both.
        duties: whether some orders contain import duty.
    """

    fractional: bool = False
    taxes_included: bool | None = None
    duties: bool = True


class OrderMaker:
    """Makes one order after the other.

    Args:
        seed: of the random generator.
        currency: of all orders.
        traits: of the kind of shop.
    """

    def __init__(self, seed: int, currency: str, traits: Traits) -> None:
        self._random = Random(seed)
        self._currency = currency
        self._traits = traits
        self._samples = _samples()

    def initial(self, count: int, until: datetime) -> Iterator[ShopOrder]:
        """Make the orders of a shop that starts at this time."""
        for number in range(1, count + 1):
            placed_at = until - PERIOD * (count - number + 1) / (count + 1)
            order = self.order(number, placed_at.replace(microsecond=0))
            latest = min(order.placed_at + timedelta(seconds=self._random.randrange(10_800)), until)
            order.updated_at = latest
            order.status = self._random.choice(("pending", "paid", "shipped", "shipped"))
            yield order

    def order(self, number: int, placed_at: datetime) -> ShopOrder:
        """Make one order."""
        random = self._random
        sample = self._samples[(number * 7919) % len(self._samples)]
        limit = _MANY_LINES if number % _MANY_EVERY == 0 else _USUAL_LINES
        customer = sample["customer_id"]
        shipping = random.choice((ZERO, Decimal("4.90"), Decimal("12.50")))
        traits, either = self._traits, random.random() < 0.5
        return ShopOrder(
            number=number,
            placed_at=placed_at,
            updated_at=placed_at,
            currency=self._currency,
            customer=int(customer) if customer and customer.isdecimal() else None,
            country=_COUNTRIES.get(sample["country"] or ""),
            lines=tuple(self._line(line) for line in islice(sample["lines"], limit)),
            taxes_included=either if traits.taxes_included is None else traits.taxes_included,
            tax_rate=random.choice(_RATES),
            shipping=shipping,
            shipping_discount=random.choice((ZERO, ZERO, shipping)),
            fee=random.choice((ZERO, ZERO, ZERO, Decimal("1.28"))),
            duty=random.choice((ZERO, ZERO, ZERO, Decimal("7.35") * traits.duties)),
            gift_wrap=random.choice((ZERO, ZERO, ZERO, Decimal("2.99"))),
        )

    def _line(self, line: dict[str, Any]) -> Line:
        random = self._random
        quantity = Decimal(line["quantity"])
        if self._traits.fractional and random.random() < 0.1:
            quantity += Decimal("0.5")
        price = cents(Decimal(line["unit_price"]))
        share = Decimal(random.choice(("0", "0", "0", "0.10", "0.333")))
        return Line(
            sku=line["sku"] if random.random() < 0.98 else "",
            title=line["description"] or "",
            quantity=quantity,
            unit_price=price,
            discount=cents(price * quantity * share),
        )


@cache
def _samples() -> Sequence[dict[str, Any]]:
    """The samples without cancellations and corrections, which shops do not write as negative lines."""
    decoded = (msgspec.json.decode(document) for document in sample_orders().values())
    return [sample for sample in decoded if sample["lines"] and all(_is_sold(line) for line in sample["lines"])]


def _is_sold(line: dict[str, Any]) -> bool:
    return bool(line["quantity"] > 0 and Decimal(line["unit_price"]) >= 0)
