"""Orders of BigCommerce's REST API, version 2, with their products. Amounts have four decimal places.

`total_inc_tax` is the sum of products, shipping, handling, gift wrapping and fees with tax, minus discounts and coupons. Prices
without tax are taxed after discounts.
"""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from shop_documents.generated import RATES, ZERO, Generated, Sum, amounts, finished, rounded, sometimes

_CHARGES = ("shipping", "handling", "wrapping")


@st.composite
def bigcommerce_orders(draw: st.DrawFn) -> Generated:
    summed = Sum(2)
    rate = draw(st.sampled_from(RATES))
    is_inclusive = draw(st.booleans())
    products = [_product(draw, number, rate, is_inclusive=is_inclusive) for number in range(draw(st.integers(1, 5)))]
    subtotal = sum((Decimal(product["total_inc_tax"]) for product in products), ZERO)
    subtotal_tax = sum((Decimal(product["total_tax"]) for product in products), ZERO)
    summed.add(subtotal)
    taxes = subtotal_tax
    document: dict[str, Any] = {
        "id": 218,
        "status": "Shipped",
        "date_created": "Tue, 05 Mar 2019 21:40:11 +0000",
        "date_modified": "Mon, 11 Mar 2019 15:17:25 +0000",
        "customer_id": 0,
        "currency_code": "USD",
        "default_currency_code": "USD",
        "is_tax_inclusive_pricing": is_inclusive,
        "subtotal_inc_tax": _written(subtotal),
        "subtotal_tax": _written(subtotal_tax),
        "refunded_amount": "1.0000",
        "billing_address": {"country_iso2": "US"},
        "fees": [],
    }
    for name in _CHARGES:
        ex_tax, tax = _taxed(draw(sometimes(amounts(2, 20))), rate, is_inclusive=is_inclusive)
        taxes += tax
        summed.add(ex_tax + tax)
        document |= {f"{name}_cost_ex_tax": _written(ex_tax), f"{name}_cost_tax": _written(tax)}
        document[f"{name}_cost_inc_tax"] = _written(ex_tax + tax)
    for number in range(draw(st.integers(0, 2))):
        fee = summed.add(draw(amounts(2, 5)))
        document["fees"].append({"id": number, "display_name_merchant": "Fee", "cost_inc_tax": _written(fee)})
    most = min(subtotal, Decimal(10))
    for name in ("discount_amount", "coupon_discount"):
        discount = rounded(most * draw(st.sampled_from([ZERO, ZERO, Decimal("0.333"), Decimal("0.5")])), 2)
        summed.add(-discount)
        document[name] = _written(discount)
        if not is_inclusive and draw(st.booleans()):
            # The tax of the order is less than the taxes of its products.
            untaxed = rounded(discount * rate, 2)
            taxes -= untaxed
            summed.maybe(-untaxed, counts=True)
    for name in ("gift_certificate_amount", "store_credit_amount"):
        paid = draw(sometimes(amounts(2, 20)))
        document[name] = _written(paid)
        # The documentation does not state whether a payment of this kind reduces the total.
        summed.maybe(-paid, counts=draw(st.booleans()))
    document |= {"total_tax": _written(taxes), "total_inc_tax": _written(summed.total)}
    document["parts"] = {
        "products": products,
        "shipping_addresses": draw(st.sampled_from([[], [{"country_iso2": "GB"}]])),
    }
    generated = finished(draw, document, summed, ("total_inc_tax",))
    document["total_inc_tax"] = _written(Decimal(document["total_inc_tax"]))
    if generated.difference:
        generated.difference = rounded(generated.difference, 4)
    return generated


def _written(amount: Decimal) -> str:
    return f"{rounded(amount, 4):f}"


def _taxed(price: Decimal, rate: Decimal, *, is_inclusive: bool) -> tuple[Decimal, Decimal]:
    if is_inclusive:
        tax = rounded(price * rate / (1 + rate), 4)
        return price - tax, tax
    return price, rounded(price * rate, 2)


def _product(draw: Any, number: int, rate: Decimal, *, is_inclusive: bool) -> dict[str, Any]:
    quantity = draw(st.sampled_from([1, 1, 2, 3, 7, 0]))
    ex_tax, tax = _taxed(draw(amounts(2)) * quantity, rate, is_inclusive=is_inclusive)
    return {
        "id": number,
        "product_id": 77,
        "name": "Towel",
        "sku": draw(st.sampled_from(["TOWEL", ""])),
        "quantity": quantity,
        "price_inc_tax": _written((ex_tax + tax) / (quantity or 1)),
        "total_ex_tax": _written(ex_tax),
        "total_tax": _written(tax),
        "total_inc_tax": _written(ex_tax + tax),
        "quantity_refunded": 0,
    }
