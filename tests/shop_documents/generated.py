"""A generated document, and the amounts that documents of all shops consist of."""

from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from itertools import combinations
from typing import Any

import msgspec
from hypothesis import strategies as st

ZERO = Decimal(0)
_encoder = msgspec.json.Encoder(decimal_format="number")
_PLANTED = ["0.01", "-0.01", "0.37", "-4.21", "1000.03"]
PLANTED = "the total was changed"
"""The reason of a difference that is not in the documentation of any shop."""


@dataclass(slots=True)
class Generated:
    """A document.

    Attributes:
        document: as decoded JSON.
        total: the document's own total, or None if it contains none.
        difference: the total minus the amounts from which it was computed.
        reason: of the difference.
    """

    document: Any
    total: Decimal | None
    difference: Decimal = ZERO
    reason: str = ""

    def encoded(self) -> bytes:
        """Return the document as JSON, with decimals as numbers."""
        return _encoder.encode(self.document)


@dataclass(slots=True)
class Sum:
    """The total of a document while it is made.

    Attributes:
        places: decimal places of the currency.
        total: the sum so far.
        optional: amounts that the document contains, and that may be missing in the total.
        depends: whether only the total shows that one of them counts.
    """

    places: int
    total: Decimal = ZERO
    optional: list[Decimal] = field(default_factory=list)
    depends: bool = False

    def add(self, amount: Decimal) -> Decimal:
        """Add an amount to the total, and return it."""
        self.total += amount
        return amount

    def maybe(self, amount: Decimal, *, counts: bool) -> Decimal:
        """Add an amount that a document of the shop may contain without counting it, and return it."""
        self.optional.append(amount)
        if counts and amount:
            self.total += amount
            self.depends = True
        return amount

    def text(self, amount: Decimal) -> str:
        """Write an amount with the decimal places of the currency."""
        return f"{rounded(amount, self.places):f}"


def rounded(amount: Decimal, places: int) -> Decimal:
    """Round half up, as PHP and most shops do."""
    return amount.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


CURRENCIES = {"EUR": 2, "USD": 2, "JPY": 0, "KWD": 3}
RATES = [Decimal(rate) for rate in ("0", "0.05", "0.07", "0.081", "0.19", "0.2", "0.2025", "0.255")]


def amounts(places: int, most: int = 500) -> st.SearchStrategy[Decimal]:
    """Amounts from 0 with the decimal places of a currency."""
    return st.integers(0, most * 10**places).map(lambda units: Decimal(units).scaleb(-places))


def sometimes(amount: st.SearchStrategy[Decimal]) -> st.SearchStrategy[Decimal]:
    """An amount that is usually zero."""
    return st.one_of(st.just(ZERO), st.just(ZERO), amount)


def shares(draw: Any, amount: Decimal, places: int) -> list[Decimal]:
    """Divide an amount into one or two parts."""
    first = rounded(amount * draw(st.sampled_from([Decimal(1), Decimal("0.5"), Decimal("0.3")])), places)
    return [part for part in (first, amount - first) if part]


def finished(draw: Any, document: Any, summed: Sum, place: tuple[str | int, ...]) -> Generated:
    """Return a document whose total may be changed by an amount that nothing explains.

    Args:
        draw: of Hypothesis.
        document: without changes.
        summed: its total.
        place: of the total in the document.
    """
    planted = ZERO
    if draw(st.integers(0, 3)) == 0 and not summed.depends:
        planted = rounded(Decimal(draw(st.sampled_from(_PLANTED))), summed.places)
        # Otherwise the difference would have an explanation.
        if planted in explained(summed):
            planted = ZERO
    if not planted:
        return Generated(document, summed.total)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    old = inner[place[-1]]
    new = summed.total + planted
    inner[place[-1]] = summed.text(new) if isinstance(old, str) else new
    return Generated(document, new, planted, PLANTED)


def explained(summed: Sum) -> set[Decimal]:
    """Return the differences that amounts explain which the total may or may not contain."""
    amounts_of_one = {amount for amount in summed.optional if amount}
    signed = [*amounts_of_one, *(-amount for amount in amounts_of_one)]
    return {rounded(sum(some, ZERO), summed.places) for count in range(1, 4) for some in combinations(signed, count)}
