"""Orders of Amazon's Orders API, version 0, with their items.

`OrderTotal` is the charge for the order. Prices in the United States and Canada are without tax, and elsewhere with it.
"""

from decimal import Decimal
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from shop_documents.generated import RATES, ZERO, Generated, Sum, amounts, explained, finished, rounded, sometimes

MARKETPLACES = {
    "ATVPDKIKX0DER": ("USD", 2, False),
    "A2EUQ1WTGCTBG2": ("CAD", 2, False),
    "A1PA6795UKMFR9": ("EUR", 2, True),
    "A1F83G8C2ARO7P": ("GBP", 2, True),
    "A1VC38T7YXB528": ("JPY", 0, True),
    "A28R8C7NBKEWEA": ("EUR", 2, True),
}
"""Currency, its decimal places, and whether prices contain tax."""
WITHOUT_WRAPPING = "the prices of gift wrapping need a restricted data token"


@st.composite
def amazon_v0_orders(draw: st.DrawFn) -> Generated:
    marketplace = draw(st.sampled_from([*MARKETPLACES, "A0NEWMARKETPLACE"]))
    currency, places, includes_tax = MARKETPLACES.get(marketplace, ("EUR", 2, draw(st.booleans())))
    summed = Sum(places)
    order: dict[str, Any] = {
        "AmazonOrderId": "902-1845936-5435065",
        "PurchaseDate": "2026-03-01T10:00:00Z",
        "LastUpdateDate": "2026-03-01T12:00:00Z",
        "OrderStatus": "Shipped",
        "MarketplaceId": marketplace,
    }
    if draw(st.integers(0, 7)) == 0:
        items = [{"OrderItemId": "05", "ASIN": "B0", "QuantityOrdered": 2}]
        return Generated({"payload": {**order, "OrderStatus": "Pending"}, "parts": {"order_items": items}}, None)
    rate = draw(st.sampled_from(RATES))
    # Whether the taxes of discounts are subtracted from the other taxes already.
    nets_taxes = draw(st.integers(0, 3)) == 0
    is_documented = includes_tax or not (nets_taxes or marketplace not in MARKETPLACES)
    has_token = draw(st.integers(0, 5)) > 0 or not is_documented
    hidden = ZERO
    items = []
    for number in range(draw(st.integers(1, 4))):
        item, wrapping = _item(draw, number, summed, currency, rate, includes_tax=includes_tax, nets_taxes=nets_taxes)
        if not has_token:
            hidden += wrapping
            item.pop("BuyerInfo", None)
        items.append(item)
    order["OrderTotal"] = {"CurrencyCode": currency, "Amount": summed.text(summed.total)}
    document = {"payload": order, "parts": {"order_items": items}}
    if hidden:
        assume(hidden not in explained(summed))
        return Generated(document, summed.total, hidden, WITHOUT_WRAPPING)
    if not is_documented:
        # A difference would not show how much of it is tax.
        return Generated(document, summed.total)
    return finished(draw, document, summed, ("payload", "OrderTotal", "Amount"))


def _item(
    draw: Any, number: int, summed: Sum, currency: str, rate: Decimal, *, includes_tax: bool, nets_taxes: bool
) -> tuple[dict[str, Any], Decimal]:
    places = summed.places

    def written(amount: Decimal) -> dict[str, str]:
        return {"CurrencyCode": currency, "Amount": summed.text(amount)}

    def tax_of(amount: Decimal) -> Decimal:
        return rounded(amount * rate / (1 + rate) if includes_tax else amount * rate, places)

    quantity = draw(st.sampled_from([1, 1, 2, 3, 7, 0]))
    price = draw(amounts(places)) if quantity or draw(st.booleans()) else ZERO
    shipping = draw(sometimes(amounts(places, 20)))
    discount = rounded(price * draw(st.sampled_from([ZERO, ZERO, Decimal("0.1"), Decimal(1)])), places)
    shipping_discount = draw(st.sampled_from([ZERO, shipping]))
    wrapping = draw(sometimes(amounts(places, 5)))
    cod = draw(sometimes(amounts(places, 3)))
    taxes = {"ItemTax": tax_of(price), "ShippingTax": tax_of(shipping), "GiftWrapTax": tax_of(wrapping)}
    discount_taxes = {"PromotionDiscountTax": tax_of(discount), "ShippingDiscountTax": tax_of(shipping_discount)}
    summed.add(price - discount + shipping - shipping_discount + wrapping + cod)
    tax, discount_tax = sum(taxes.values(), ZERO), sum(discount_taxes.values(), ZERO)
    summed.optional += [tax, discount_tax]
    if not includes_tax:
        summed.add(tax - (ZERO if nets_taxes else discount_tax))
    item = {
        "OrderItemId": f"0501585115415{number}",
        "ASIN": "B00551Q3CS",
        "SellerSKU": draw(st.sampled_from(["CBA", ""])),
        "Title": "Pan",
        "QuantityOrdered": quantity,
        "ItemPrice": written(price),
        "ItemTax": written(taxes["ItemTax"]),
        "ShippingPrice": written(shipping),
        "ShippingTax": written(taxes["ShippingTax"]),
        "ShippingDiscount": written(shipping_discount),
        "PromotionDiscount": written(discount),
        "CODFee": written(cod),
        **{name: written(amount) for name, amount in discount_taxes.items()},
    }
    if wrapping:
        item["BuyerInfo"] = {"GiftWrapPrice": written(wrapping), "GiftWrapTax": written(taxes["GiftWrapTax"])}
    return item, wrapping + (ZERO if includes_tax else taxes["GiftWrapTax"])
