"""The decimal places of the minor units of currencies, by ISO 4217 (list one, 2025)."""

_DIGITS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_BY_CURRENCY = {currency: digits for digits, currencies in _DIGITS.items() for currency in currencies.split()}


def minor_units(currency: str | None) -> int:
    """Return the decimal places of a currency, 2 by default."""
    return _BY_CURRENCY.get(currency.upper(), 2) if currency else 2
