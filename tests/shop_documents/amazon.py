"""Orders of Amazon's Orders API, version 2026-01-01, with their proceeds.

`proceeds.grandTotal` is the sum of the proceeds of the items. Prices in the United States and Canada are without tax, and elsewhere
with it.
"""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from shop_documents.amazon_v0 import MARKETPLACES
from shop_documents.generated import RATES, ZERO, Generated, Sum, amounts, finished, rounded, sometimes


@st.composite
def amazon_orders(draw: st.DrawFn) -> Generated:
    marketplace = draw(st.sampled_from([*MARKETPLACES, "A0NEWMARKETPLACE"]))
    currency, places, includes_tax = MARKETPLACES.get(marketplace, ("EUR", 2, draw(st.booleans())))
    summed = Sum(places)
    order: dict[str, Any] = {
        "orderId": "202-1234567-8901234",
        "createdTime": "2026-03-01T09:15:00Z",
        "lastUpdatedTime": "2026-03-01T16:30:00Z",
        "salesChannel": {"channelName": "AMAZON", "marketplaceId": marketplace},
        "fulfillment": {"fulfillmentStatus": "SHIPPED"},
    }
    if draw(st.integers(0, 7)) == 0:
        order["orderItems"] = [{"orderItemId": "05", "quantityOrdered": 2, "product": {"asin": "B0"}}]
        return Generated({"order": order}, None)
    rate = draw(st.sampled_from(RATES))
    is_negative = draw(st.booleans())
    order["orderItems"] = [
        _item(draw, number, summed, currency, rate, includes_tax=includes_tax, is_negative=is_negative)
        for number in range(draw(st.integers(1, 4)))
    ]
    if not includes_tax and marketplace not in MARKETPLACES:
        # A difference would not show how much of it is tax.
        summed.depends = True
    tip = draw(sometimes(amounts(places, 10)))
    order["proceeds"] = {"breakdowns": [{"type": "DELIVERY_TIP", "subtotal": _money(summed, currency, tip)}]}
    summed.maybe(tip, counts=draw(st.booleans()))
    order["proceeds"]["grandTotal"] = _money(summed, currency, summed.total)
    return finished(draw, {"order": order}, summed, ("order", "proceeds", "grandTotal", "amount"))


def _money(summed: Sum, currency: str, amount: Decimal) -> dict[str, str]:
    return {"amount": summed.text(amount), "currencyCode": currency}


def _item(
    draw: Any, number: int, summed: Sum, currency: str, rate: Decimal, *, includes_tax: bool, is_negative: bool
) -> dict[str, Any]:
    places = summed.places
    quantity = draw(st.sampled_from([1, 1, 2, 3, 7, 0]))
    proceeds = {
        "ITEM": draw(amounts(places)),
        "SHIPPING": draw(sometimes(amounts(places, 20))),
        "GIFT_WRAP": draw(sometimes(amounts(places, 5))),
        "COD_FEE": draw(sometimes(amounts(places, 3))),
        "OTHER": draw(sometimes(amounts(places, 3))),
    }
    charged = sum(proceeds.values(), ZERO)
    discount = rounded(charged * draw(st.sampled_from([ZERO, ZERO, Decimal("0.1"), Decimal(1)])), places)
    summed.add(charged - discount)
    taxed = charged - discount
    tax = rounded(taxed * rate / (1 + rate) if includes_tax else taxed * rate, places)
    summed.optional.append(tax)
    if not includes_tax:
        summed.add(tax)
    proceeds |= {"TAX": tax, "DISCOUNT": -discount if is_negative else discount}
    return {
        "orderItemId": f"0501585115415{number}",
        "quantityOrdered": quantity,
        "product": {
            "asin": "B07XJ8C8F5",
            "title": "Pan",
            "price": {"unitPrice": _money(summed, currency, proceeds["ITEM"])},
        },
        "proceeds": {
            "proceedsTotal": _money(summed, currency, charged - discount),
            "breakdowns": [
                {"type": name, "subtotal": _money(summed, currency, amount)}
                for name, amount in proceeds.items()
                if amount or name == "ITEM"
            ],
        },
    }
