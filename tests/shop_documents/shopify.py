"""Orders of Shopify's GraphQL Admin API, which are the orders of the REST API in another form."""

from typing import Any

from hypothesis import strategies as st

from shop_documents.generated import Generated
from shop_documents.shopify_rest import shopify_rest_orders

_PAGE = 3
"""Line items in the document. Further ones are in its parts."""


@st.composite
def shopify_orders(draw: st.DrawFn) -> Generated:
    generated = draw(shopify_rest_orders(is_rest=False))
    order = generated.document
    lines = [_line(line) for line in order["line_items"]]
    document: dict[str, Any] = {
        "legacyResourceId": str(order["id"]),
        "name": order["name"],
        "createdAt": "2026-03-01T15:00:00Z",
        "processedAt": "2026-03-01T15:00:00Z",
        "updatedAt": "2026-03-01T15:00:05Z",
        "cancelledAt": None,
        "currencyCode": order["currency"],
        "presentmentCurrencyCode": "CAD",
        "displayFinancialStatus": order["financial_status"].upper(),
        "displayFulfillmentStatus": "UNFULFILLED",
        "taxesIncluded": order["taxes_included"],
        "dutiesIncluded": order.get("duties_included", False),
        "totalPriceSet": _money(order["total_price"]),
        "totalTaxSet": _money(order["total_tax"]),
        "totalTipReceivedSet": _money(order["total_tip_received"]),
        "originalTotalDutiesSet": _set(order.get("original_total_duties_set")),
        "additionalFees": [],
        "lineItems": {"nodes": lines[:_PAGE], "pageInfo": {"hasNextPage": len(lines) > _PAGE, "endCursor": "c"}},
        "shippingLines": {"nodes": [_shipping(line) for line in order["shipping_lines"]]},
        "refunds": [],
    }
    if (fee := order.get("original_total_additional_fees_set")) is not None:
        document["additionalFees"] = [{"name": "Packaging", "price": _set(fee)}]
    generated.document = {"data": {"order": document}, "parts": {"line_items": lines[_PAGE:]}}
    return generated


def _money(amount: str) -> dict[str, Any]:
    return {"shopMoney": {"amount": amount}}


def _set(money: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if money is None else _money(money["shop_money"]["amount"])


def _line(line: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"gid://shopify/LineItem/{line['id']}",
        "sku": line["sku"],
        "name": line["name"],
        "quantity": line["quantity"],
        "currentQuantity": line.get("current_quantity", 1),
        "originalUnitPriceSet": _money(line["price"]),
        "discountAllocations": _allocations(line),
    }


def _shipping(line: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": line["title"],
        "isRemoved": line["is_removed"],
        "originalPriceSet": _money(line["price"]),
        "discountedPriceSet": _money(line.get("discounted_price", line["price"])),
        "discountAllocations": _allocations(line),
    }


def _allocations(line: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"allocatedAmountSet": _money(part["amount"])} for part in line.get("discount_allocations", [])]
