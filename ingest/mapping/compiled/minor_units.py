"""The decimal places of minor units of currencies, such as 2 for cents."""

from collections.abc import Mapping
from decimal import Decimal

from ingest.mapping.compiled.conversions import shifted

_DIGITS = 2
_STANDARD = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
# https://docs.stripe.com/currencies (2026). ISK and UGX have no minor unit any more, but Stripe still writes two decimal places. HUF and
# TWD are restricted to whole amounts in payouts, which have two decimal places as well.
_STRIPE = {
    0: "BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF",
    3: "BHD JOD KWD OMR TND",
}


def _by_currency(currencies: Mapping[int, str]) -> dict[str, int]:
    return {currency: digits for digits, names in currencies.items() for currency in names.split()}


ISO_4217 = _by_currency(_STANDARD)
"""By ISO 4217 (list one, 2025). Other currencies have 2."""
STRIPE = _by_currency(_STRIPE)
"""In the API of Stripe. Other currencies have 2."""


def digits_of(currency: str | None, digits: Mapping[str, int] = ISO_4217) -> int:
    """Return the decimal places of a currency."""
    return digits.get(currency.upper(), _DIGITS) if currency else _DIGITS


def in_major_units(number: Decimal, currency: str | None, digits: Mapping[str, int] = ISO_4217) -> Decimal:
    """Convert an amount from the minor units of a currency to its major units."""
    return shifted(number, digits_of(currency, digits))
